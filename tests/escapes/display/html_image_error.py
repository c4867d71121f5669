"""A handler on an image that can't load."""

html(f'<img src=x onerror="{TERMINAL}">')
