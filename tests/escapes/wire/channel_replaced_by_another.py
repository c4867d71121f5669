# puts another socket where its channel was, and keeps the channel
# ends: ok
# next: ok after timeout
kept = os.dup(3)
ours, theirs = socket.socketpair()
os.write(kept, frame(done(own_id())))
os.dup2(theirs.fileno(), 3)
