# the name of a stream, a megabyte long
# ends: protocol
send(text("x", name="x" * 1_000_000))
wait()
