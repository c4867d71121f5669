# a million frames without a message
# ends: protocol
put(b"\0" * 4_000_000)
wait()
