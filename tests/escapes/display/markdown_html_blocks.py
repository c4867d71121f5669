"""Blocks of HTML of each kind that Markdown knows."""

markdown(f"""<div
onmouseover={JS}>

<img
src=x
onerror={JS}>

<!-- > --><img src=x onerror={JS}> -->

<?php ?><img src=x onerror={JS}>

<![CDATA[ ]]><img src=x onerror={JS}>

<pre><img src=x onerror={JS}></pre>

</div onclick={JS}>
""")
