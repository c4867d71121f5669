confined = "EPERM"
def attack(w):
    fcntl.ioctl(socket.socketpair()[0], 0x8902, struct.pack("i", w.sentinel))
