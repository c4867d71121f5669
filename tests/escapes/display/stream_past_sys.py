"""Text written to the descriptors, around Python's streams."""

for descriptor in (1, 2):
    os.write(descriptor, f"\x1b]0;{NAME}\x07\x1b[2J<img src=x onerror={JS}>\n".encode() + b"\xff\xfe\x9b2J\n")
publish("stream", {"name": "stdout", "text": f"\x1b]0;{NAME}\x07"})
