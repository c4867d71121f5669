"""Rich's export of a console with hostile text and links."""

import io
from rich.console import Console
console = Console(record=True, file=io.StringIO(), width=40)
console.print(f"[link=javascript:{JS}]x[/link] <img src=x onerror={JS}>")
html(console.export_html(inline_styles=True) + f"<script>{JS}</script>")
svg(console.export_svg())
