confined = "EPERM"
def attack(w):
    socket.socket(29, socket.SOCK_RAW, 1).close()
