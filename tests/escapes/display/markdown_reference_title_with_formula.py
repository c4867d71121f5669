"""The same in a reference, over two lines."""

markdown(f"""[hover][r]

[r]: https://example.org
  "$" onmouseover="{JS}" x="$"
""")
