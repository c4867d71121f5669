confined = "EPERM"
def attack(w):
    socket.socket(31, socket.SOCK_RAW, 1).close()
