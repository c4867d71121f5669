confined = "EPERM"
only_root = True
def attack(w):
    socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 36, 1)
