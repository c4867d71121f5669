"""HTML and links in the cells of a table, and in its alignment."""

markdown(f"""| a | b |
|---|:-:|
| <img src=x onerror={JS}> | [x](javascript:{JS}) |
| ![x]({URL}) | <script>{JS}</script> |
""")
