"""A stream that is neither stdout nor stderr."""

publish("stream", {"name": "stdin", "text": f"\x1b]0;{NAME}\x07"})
publish("stream", {"name": f"<img src=x onerror={JS}>", "text": f"\x1b]0;{NAME}\x07"})
