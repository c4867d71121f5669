confined = "EPERM"
only_root = True
def attack(w):
    socket.sethostname(socket.gethostname())
