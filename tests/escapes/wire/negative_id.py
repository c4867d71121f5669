# an id of -1
# ends: protocol
send(done(-1))
wait()
