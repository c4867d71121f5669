confined = "EPERM"
only_root = True
def attack(w):
    socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58).close()
