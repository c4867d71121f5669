"""Backquotes and quotes that serialising turns around."""

html(rf"""<img src="x` `<script>{JS}</script>"` `><p style="a:'\27 \22 ><img src=x onerror={JS}>'">x</p>""")
