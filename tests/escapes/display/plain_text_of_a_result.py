"""Sequences in the plain text of a result."""

class Plain:
    def __repr__(self): return f"\x1b]0;{NAME}\x07\x1b]8;;{LINK}\x07x\x1b]8;;\x07\x1b[2J\x9b2J<img src=x onerror={JS}>"
display(Plain())
Plain()
