confined = "EPERM"
def attack(w):
    socket.socket(41, socket.SOCK_DGRAM).close()
