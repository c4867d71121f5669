"""Markup, as old front ends put it into the page."""

for stream in (sys.stdout, sys.stderr):
    print(f"\x1b]0;x\x07<img src=x onerror={JS}><script>{JS}</script> \x1b[31<img src=x onerror={JS}>m", file=stream)
