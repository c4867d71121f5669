# the header of the largest frame, most of its bytes, never the last
# ends: protocol
put(CAP.to_bytes(4, "big") + b"x" * (CAP - 1))
wait()
