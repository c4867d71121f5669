confined = "EPERM"
def attack(w):
    fcntl.ioctl(socket.socketpair()[0], 0x5452, struct.pack("i", 0))
