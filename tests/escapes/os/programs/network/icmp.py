confined = "EPERM"
only_root = True
def attack(w):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()
