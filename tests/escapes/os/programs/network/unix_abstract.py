confined = "EPERM"
def attack(w):
    socket.socket(socket.AF_UNIX).connect("\0" + w.abstract)
