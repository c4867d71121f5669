# passes a descriptor to the host
# ends: any
try: socket.send_fds(socket.socket(fileno=os.dup(3)), [frame(text("x"))], [0] * 10)
except OSError: pass
