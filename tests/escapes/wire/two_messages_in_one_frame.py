# two messages under one length
# ends: protocol
send(mp(text("hello")) * 2)
wait()
