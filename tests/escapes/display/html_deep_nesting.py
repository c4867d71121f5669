"""A handler below more elements than a parser counts."""

html('<div>' * 600 + f'<img src=x onerror={JS}>' + '</div>' * 600)
