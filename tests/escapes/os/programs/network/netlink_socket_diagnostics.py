confined = "EPERM"
def attack(w):
    socket.socket(16, socket.SOCK_RAW, 4).close()
