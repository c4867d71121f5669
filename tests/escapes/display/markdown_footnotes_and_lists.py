"""Footnotes, definitions, tasks, attributes of other dialects."""

markdown(f"""a[^1] [x](https://example.org){{onclick="{JS}"}} - [ ] task

[^1]: <img src=x onerror={JS}>

term
: ![]({URL})

*[abbr]: <img src=x onerror={JS}>

::: {{.x onclick="{JS}"}}
:::

:::{{figure}} {URL}
:::

{{raw:html}}`<script>{JS}</script>`
""")
