# says that nothing more will come, and goes on running
# ends: protocol
socket.socket(fileno=os.dup(3)).shutdown(socket.SHUT_WR)
while True: time.sleep(1)
