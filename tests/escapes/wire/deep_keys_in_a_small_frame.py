# arrays in each other, as the key of a map: in a frame so small that it is not looked through, the decoder of Python 3.13 reads it
# ends: any
send(json(b"\x81" + b"\x91" * 5_000 + b"\0\0"))
