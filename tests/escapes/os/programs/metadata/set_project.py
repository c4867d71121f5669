# FS_IOC_FSSETXATTR
confined = "EPERM"
def attack(w):
    fd = os.open(w.readable + "/file", os.O_RDONLY)
    attributes = bytearray(28)
    fcntl.ioctl(fd, 0x801C581F, attributes)
    fcntl.ioctl(fd, 0x401C5820, attributes)
