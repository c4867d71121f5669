confined = "EPERM"
def attack(w):
    socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
