# Linux 6.13.
confined = "ENOTSUP"
def attack(w):
    value = space(b"1")
    args = space(struct.pack("QII", ctypes.addressof(value), 1, 0))
    call("setxattrat", AT_FDCWD, name(w.secret), 0, name("user.evil"), args, 16)
