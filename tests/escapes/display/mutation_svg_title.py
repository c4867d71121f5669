"""HTML inside an SVG's title, desc and foreignObject."""

html(f"<svg><title><style><img src=x onerror={JS}></style></title><desc><img src=x onerror={JS}></desc><foreignObject><img src=x onerror={JS}></foreignObject></svg>")
