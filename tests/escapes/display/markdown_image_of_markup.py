"""An image that carries a drawing or a page."""

markdown(f"![a](data:image/svg+xml,<svg onload={JS}>) ![b](data:image/svg+xml;base64,PHN2Zy8+) ![c](data:text/html;base64,PHN2Zy8+)")
