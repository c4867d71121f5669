confined = "EPERM"
def attack(w):
    socket.socket(30, socket.SOCK_RDM).close()
