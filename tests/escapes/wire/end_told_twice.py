# a good reply, and the same again
# ends: ok
# after: protocol
later(send, done(own_id()), seconds=0.3)
