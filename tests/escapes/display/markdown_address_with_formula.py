"""The same in a link's address, bare or not."""

markdown(f"""[hover](https://example.org/$"onmouseover="{JS}"x="$) <https://example.org/$"onmouseover="{JS}"x="$> https://example.org/$"onmouseover="{JS}"x="$ www.example.org/$"onmouseover="{JS}"$

[ref]

[ref]: https://example.org/$"onmouseover="{JS}"x="$
""")
