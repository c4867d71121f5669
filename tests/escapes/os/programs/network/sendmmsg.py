confined = "EPERM"
def attack(w):
    a, b = socket.socketpair()
    call("sendmmsg", a.fileno(), space(64), 0, 0)
