confined = "EPERM"
def attack(w):
    socket.socket(16, socket.SOCK_RAW, 16).close()
