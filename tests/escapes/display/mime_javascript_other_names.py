"""The other names of JavaScript."""

for mime in ("text/javascript", "application/ecmascript", "application/x-javascript", "module"):
    show(mime, JS)
