"""Ends of lines in a plain text that end the code block of an exported page."""

show("text/plain", f"42\r\r<script>{JS}</script>\u2028\u2028.. include:: /etc/passwd\u2029")
display({"text/plain": f"42\r\r<script>{JS}</script>"}, raw=True)
