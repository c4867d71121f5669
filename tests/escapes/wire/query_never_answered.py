# reads what it is asked and never says a word
# ask: complete
# ends: ok
# next: ok after protocol
send(done(own_id()))
for request in requests(): pass
