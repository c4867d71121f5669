"""Elements that end foreign content."""

html(f"<svg><p><style><img src=x onerror={JS}></style><svg><font color=x><img src=x onerror={JS}></svg><svg><g><br><img src=x onerror={JS}>")
