confined = "EPERM"
unconfined = "reached"
def attack(w):
    fd = os.open(w.readable + "/file", os.O_RDONLY)
    other = os.open(w.readable + "/program", os.O_RDONLY)
    fcntl.ioctl(fd, 0xC0189436, bytearray(struct.pack("QQHHIqQQII", 0, 1, 1, 0, 0, other, 0, 0, 0, 0)))
