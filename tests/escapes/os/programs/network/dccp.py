confined = "EPERM"
unconfined = "reached"
def attack(w):
    socket.socket(socket.AF_INET, 6, 33).close()
