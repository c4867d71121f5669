"""A form inside a form that a parser moves."""

html(f"<form id=outer><div></form><form id=inner><input name=attributes><input name=x formaction='javascript:{JS}' type=submit value=press></form></div></form>")
