confined = "EPERM"
def attack(w):
    fcntl.ioctl(socket.socketpair()[0], 0x8912, bytearray(16))
