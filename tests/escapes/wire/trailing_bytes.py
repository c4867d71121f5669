# a message and a bit more in one frame
# ends: protocol
send(mp(text("hello")) + b"\0")
wait()
