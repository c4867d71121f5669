"""Formatting elements that a parser opens again."""

html('<b><i><u><a href=x>' * 50 + f'<p><img src=x onerror={JS}>' + '</b></a>' * 50)
