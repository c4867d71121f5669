# a third stream
# ends: protocol
send(text("x", name="stdlog"))
wait()
