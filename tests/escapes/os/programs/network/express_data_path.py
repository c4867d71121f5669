confined = "EPERM"
only_root = True
def attack(w):
    socket.socket(44, socket.SOCK_RAW).close()
