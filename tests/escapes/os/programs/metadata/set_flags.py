# FS_IOC_SETFLAGS takes a descriptor opened for reading: nodump, noatime, immutable.
confined = "EPERM"
def attack(w):
    fcntl.ioctl(os.open(w.readable + "/file", os.O_RDONLY), 0x40086602, struct.pack("l", 0x40))
