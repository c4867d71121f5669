# arrays in each other, as the key of a map
# ends: protocol
send(json(b"\x81" + b"\x91" * 9_000 + b"\0\0"))
wait()
