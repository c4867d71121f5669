"""A table whose cells and headings are markup, unescaped."""

import pandas
frame = pandas.DataFrame({f"<img src=x onerror={JS}>": [f"<script>{JS}</script>", f"<a href='javascript:{JS}'>x</a>"]})
html(frame.to_html(escape=False))
show("text/markdown", f"| a |\n|---|\n| <img src=x onerror={JS}> |")
