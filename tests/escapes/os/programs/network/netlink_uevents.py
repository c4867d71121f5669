confined = "EPERM"
def attack(w):
    s = socket.socket(16, socket.SOCK_DGRAM, 15)
    s.bind((0, 1))
