# the reply to a request that was not made yet
# ends: protocol
send(done(own_id() + 1))
wait()
