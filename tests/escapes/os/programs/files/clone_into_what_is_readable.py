# FICLONE and FIDEDUPERANGE share extents; the latter needs no descriptor for writing everywhere.
confined = "EPERM"
unconfined = "EBADF"
def attack(w):
    a, b = os.open(w.readable + "/file", os.O_RDONLY), os.open(w.readable + "/program", os.O_RDONLY)
    fcntl.ioctl(b, 0x40049409, a)
