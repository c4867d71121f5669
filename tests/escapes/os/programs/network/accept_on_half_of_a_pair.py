confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    a, b = socket.socketpair()
    call("accept4", a.fileno(), 0, 0, 0)
