confined = "EPERM"
def attack(w):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.connect(w.datagram)
    a.send(b"x")
