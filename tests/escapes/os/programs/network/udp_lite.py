confined = "EPERM"
def attack(w):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).close()
