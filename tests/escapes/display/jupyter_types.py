"""Types that belong to Jupyter itself."""

for mime in ("application/vnd.jupyter.stdout", "application/vnd.jupyter.stderr",
             "application/vnd.jupyter.error", "application/vnd.jupyter.stdin",
             "application/x-ipynb+json", "application/vnd.jupyter.cells"):
    show(mime, f"\x1b]8;;{URL}\x07a\x1b]8;;\x07<img src=x onerror={JS}>")
