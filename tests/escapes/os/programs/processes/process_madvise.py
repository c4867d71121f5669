confined = "EPERM"
unconfined = "EBADF"
def attack(w):
    here = space(16)
    vector = space(struct.pack("QQ", ctypes.addressof(here) & ~4095, 4096))
    call("process_madvise", 999, vector, 1, 20, 0)
