"""A docstring and a signature shown by a question mark."""

def hostile(x=type("D", (), {"__repr__": lambda _: f"\x1b]0;x\x07<script>{JS}</script>"})()): pass
hostile.__doc__ = f"\x1b]0;{NAME}\x07\x1b[2J<img src=x onerror={JS}>"
hostile.__name__ = f"\x1b]0;x\x07<img src=x onerror={JS}>"
get_ipython().run_line_magic("pinfo", "hostile")
