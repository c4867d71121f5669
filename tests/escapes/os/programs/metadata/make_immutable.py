# A file that nobody can remove any more, in a folder that has to be removed.
confined = "EPERM"
only_root = True
def attack(w):
    fd = os.open("file", os.O_RDONLY)
    fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0x10))
    fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0))
