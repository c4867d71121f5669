# leaves what it is sent where it is
# ask: comms of 20 MB
# ends: ok
# next: ok after protocol
send(done(own_id()))
wait()
