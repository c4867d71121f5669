"""HTML as a list of lines, which the notebook format allows."""

show("text/html", ["<img src=x ", f"onerror={JS}>"])
