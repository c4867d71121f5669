"""The same with an environment and with brackets."""

markdown(rf"""[hover](https://example.org "\begin{{a}}" onmouseover="{JS}" x="\end{{a}}") [two](https://example.org '\\(" onmouseover="{JS}" x="\\)') [three](https://example.org '\\[" onmouseover="{JS}" x="\\]')""")
