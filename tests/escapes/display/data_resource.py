"""A tabular data resource whose fields are HTML and addresses."""

show("application/vnd.dataresource+json", {"schema": {"fields": [{"name": f"<img src=x onerror={JS}>"}]},
    "path": URL, "data": [{f"<img src=x onerror={JS}>": f"<a href='javascript:{JS}'>x</a>"}]})
html(f"<img src=x onerror={JS}>")
