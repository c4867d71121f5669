"""Headings whose ids are the page's own."""

markdown(f"""# jupyter-config-data <img src=x onerror={JS}>

## main {{onclick={JS}}}

<h1 id=jupyter-config-data onmouseover={JS}>x</h1>

[x](#main)
""")
