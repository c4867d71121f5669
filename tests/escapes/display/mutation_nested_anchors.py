"""Links within links, tables within links."""

html(f"<a href=x><table><a href='javascript:{JS}'>x</a></table></a><a><svg><a href='javascript:{JS}'><text y=9>x</text></a></svg></a>")
