"""A handler behind ten thousand attributes."""

html("<img " + " ".join(f"a{n}" for n in range(10_000)) + f" src=x onerror={JS}>")
html("<img title='" + "a" * 9_000 + f"' src=x onerror={JS}>")
