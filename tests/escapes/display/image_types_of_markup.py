"""Types of images that browsers parse."""

drawing = f"<svg xmlns='http://www.w3.org/2000/svg' onload={JS}><image href='{URL}'/></svg>"
for mime in ("image/svg", "image/svg+xml;charset=utf-8", "IMAGE/SVG+XML", "image/xml", "application/xhtml+xml",
             "text/xml", "application/xml", "application/mathml+xml", "text/cache-manifest"):
    show(mime, drawing)
