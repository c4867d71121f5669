"""Sequences and markup in an error's name and value."""

class Hostile(Exception): pass
Hostile.__name__ = Hostile.__qualname__ = f"\x1b]0;{NAME}\x07<img src=x onerror={JS}>"
raise Hostile(f"\x1b[2J\x1b]8;;{LINK}\x07x\x1b]8;;\x07<script>{JS}</script>")
