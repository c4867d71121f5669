confined = "EPERM"
unconfined = "EISCONN"
def attack(w):
    a, b = socket.socketpair()
    a.connect(w.stream)
