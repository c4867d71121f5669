# the reply to a request that was answered before
# before: pass
# ends: protocol
send(done(own_id() - 1))
wait()
