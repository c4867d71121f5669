confined = "EPERM"
def attack(w):
    socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132).close()
