"""Types with a zero-width space, a Kelvin sign, a null byte."""

for mime in ("text/html\u200b", "text/mar\u212adown", "text/html\0", "text\uff0fhtml"):
    show(mime, f"<img src=x onerror={JS}>")
