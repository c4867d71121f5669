"""The text and file of a syntax error."""

raise SyntaxError(f"\x1b]0;{NAME}\x07<script>{JS}</script>", (f"\x1b]0;{NAME}\x07<img src=x onerror={JS}>", 1, 1, f"\x1b[2J<img src=x onerror={JS}>", 1, 9))
