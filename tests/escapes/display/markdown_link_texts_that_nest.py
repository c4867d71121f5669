"""Links in the text of links, brackets within brackets."""

markdown(f"""[a [b](javascript:{JS})](https://example.org) [![x]({URL})](javascript:{JS}) [a](https://example.org)(javascript:{JS}) [a]( javascript:{JS} ) [a](
javascript:{JS}) [a]
(javascript:{JS}) [a](https://example.org "
javascript:{JS}")""")
