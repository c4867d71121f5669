confined = "EPERM"
def attack(w):
    socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 16, 1)
