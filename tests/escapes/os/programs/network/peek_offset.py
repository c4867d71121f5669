# SO_PEEK_OFF on local streams: another source of kernel bugs.
confined = "EPERM"
def attack(w):
    socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 42, 0)
