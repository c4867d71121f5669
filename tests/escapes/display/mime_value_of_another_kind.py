"""Values that are no text where text is expected."""

payload = f"<img src=x onerror={JS}>"
show("text/html", {"toString": payload, "length": 1, "0": payload})
show("text/markdown", [[payload], [payload]])
show("text/latex", {"a": payload})
show("image/svg+xml", 7)
show("image/png", {"a": [payload]})
