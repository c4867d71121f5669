confined = "EPERM"
unconfined = "EOPNOTSUPP"
no_control = "local sockets do not offer it everywhere"
def attack(w):
    socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 60, 1)
