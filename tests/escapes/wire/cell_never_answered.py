# reads its next cell and never says a word
# ends: ok
# next: ok after lost
# timeout: 10
send(done(own_id()))
for request in requests(): pass
