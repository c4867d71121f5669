"""Types with parameters and blanks."""

for mime in ("text/html; charset=utf-8", "text/html ", " text/html", "text/html\t", "text/html\n"):
    show(mime, f"<img src=x onerror={JS}>")
show("application/javascript;charset=utf-8", JS)
