# A socket that is connected can still be given a name.
confined = "EPERM"
def attack(w):
    a, b = socket.socketpair()
    a.bind("\0" + w.abstract + "-made")
