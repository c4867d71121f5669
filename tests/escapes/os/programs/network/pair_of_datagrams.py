# Half of a pair of datagram sockets can be sent elsewhere.
confined = "EPERM"
def attack(w):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.sendto(b"x", w.datagram)
