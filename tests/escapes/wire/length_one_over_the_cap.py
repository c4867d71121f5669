# a frame that announces one byte more than is taken
# ends: protocol
put((CAP + 1).to_bytes(4, "big"))
wait()
