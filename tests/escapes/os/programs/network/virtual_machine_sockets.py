confined = "EPERM"
def attack(w):
    socket.socket(40, socket.SOCK_STREAM).close()
