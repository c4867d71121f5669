"""A Styler that makes links, of addresses that are scripts."""

import pandas
display(pandas.DataFrame({"a": [f"javascript:{JS}", LINK, f"https://a/'onmouseover='{JS}"]}).style.format(hyperlinks="html"))
html(f"<script>{JS}</script>")
