"""A field that asks for a password and sends it."""

html(f"<form action='{URL}'><label>Password <input type=password name=p autofocus></label><input type=submit value='Sign in'></form>")
