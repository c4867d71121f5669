confined = "EPERM"
def attack(w):
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", w.datagram)
