# extensions of every code and size in a bundle
# ends: ok
for code in range(127): send(json(b"\xc7\x03" + bytes([code]) + b"abc"))
