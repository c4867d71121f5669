confined = "EPERM"
def attack(w):
    socket.socket(21, socket.SOCK_SEQPACKET).close()
