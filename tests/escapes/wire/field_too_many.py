# a field that the message does not have: an execution count of its own
# ends: protocol
send(done(own_id(), execution_count=10_000))
wait()
