"""A style element is text in HTML and markup in SVG."""

html(f'<svg></p><style><a id="</style><img src=1 onerror={JS}>"></svg><svg><style><img src=x onerror={JS}></style></svg>')
