confined = "EPERM"
only_root = True
def attack(w):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768).close()
