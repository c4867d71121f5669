# FIOSETOWN and SIOCSPGRP are F_SETOWN for sockets.
confined = "EPERM"
def attack(w):
    fcntl.ioctl(socket.socketpair()[0], 0x8901, struct.pack("i", w.sentinel))
