"""JupyterLab puts formulas back after parsing: one in a link's title ends its attribute."""

markdown(f"""[hover over me](https://example.org "$" onmouseover="{JS}" x="$")

[or me](https://example.org '$" autofocus onfocus="{JS}" x="$')

[or me](https://example.org ($" onpointerenter="{JS}" x="$))""")
