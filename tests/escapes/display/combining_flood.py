"""Marks that pile up over the lines above, and a sequence among them."""

print("Z" + "\u0335\u0336\u030d\u0315" * 500 + "\x1b[2J")
html(f"<p>Z{'&#x030d;' * 500}<img src=x onerror={JS}></p>")
