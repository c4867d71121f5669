"""Handlers on a second html, head and body, which parsers merge."""

html(f"<html onclick={JS}><head profile='{URL}'></head><body background='{URL}' onclick={JS} onfocus={JS}>x</body></html>")
