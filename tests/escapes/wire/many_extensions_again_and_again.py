# as many extensions of one byte as a frame may hold
# ends: any
put(frame(json(array(b"\xd4\x07x", 660_000))) * 4)
