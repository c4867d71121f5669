"""Ends of lines in printed text that only some readers know."""

print(f"a\u2028\u2028<script>{JS}</script>\u2029.. include:: /etc/passwd\x85\x0b\x0c\x1c\x1d\x1eb")
