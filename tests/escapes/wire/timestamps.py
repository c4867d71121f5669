# times, also impossible ones, in a bundle
# ends: any
for raw in (b"\xd6\xff\0\0\0\1", b"\xd7\xff" + b"\xff" * 8, b"\xc7\x0c\xff" + b"\xff" * 12): send(json(raw))
