"""An image map over a link that is a script."""

html(f"<img usemap=#m width=90 height=90 src='data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA='><map name=m><area shape=default href='javascript:{JS}' ping='{URL}'></map>")
