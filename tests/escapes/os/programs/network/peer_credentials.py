confined = "EPERM"
def attack(w):
    socket.socketpair()[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
