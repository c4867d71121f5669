confined = "EPERM"
def attack(w):
    socket.socket(43, socket.SOCK_STREAM).close()
