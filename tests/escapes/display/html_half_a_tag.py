"""Markup that ends in the middle of a tag, an attribute, a comment."""

html(f'<b>x</b><img src=x onerror={JS} <p title="')
