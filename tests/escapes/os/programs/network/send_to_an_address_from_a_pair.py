confined = "EPERM"
unconfined = "EISCONN"
def attack(w):
    a, b = socket.socketpair()
    call("sendto", a.fileno(), space(b"x"), 1, 0, space(struct.pack("H", 1)), 2)
