# says that it will not listen any more
# ends: ok
# next: ok after protocol
socket.socket(fileno=os.dup(3)).shutdown(socket.SHUT_RD)
send(done(own_id()))
while True: time.sleep(1)
