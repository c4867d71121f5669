confined = "EPERM"
def attack(w):
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).close()
