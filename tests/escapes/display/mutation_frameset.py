"""A frameset that swallows the page, and head elements in the body."""

html(f"<frameset><frame src='javascript:{JS}'></frameset></frameset><noframes></noframes><head><base href='{URL}'></head>")
