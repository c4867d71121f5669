"""Notes, causes and groups of exceptions."""

error = ValueError(f"\x1b]0;{NAME}\x07")
error.add_note(f"\x1b]0;{NAME}\x07<script>{JS}</script>")
raise ExceptionGroup(f"\x1b[2J<img src=x onerror={JS}>", [error, KeyError("\x1b]0;x\x07")])
