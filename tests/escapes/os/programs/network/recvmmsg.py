confined = "EPERM"
def attack(w):
    a, b = socket.socketpair()
    call("recvmmsg", a.fileno(), space(64), 0, 0x40, 0)
