# a frame without a message
# ends: protocol
put(b"\0" * 4)
wait()
