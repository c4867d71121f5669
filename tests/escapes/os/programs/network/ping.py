confined = "EPERM"
unconfined = "EACCES"
def attack(w):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1).close()
