"""Markup in TeX, for front ends that put it into the page."""

latex(rf"<img src=x onerror={JS}> $</script><script>{JS}</script>$ &lt;script&gt; $\text{{<img src=x onerror={JS}>}}$")
