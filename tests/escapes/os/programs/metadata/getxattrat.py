confined = "ENOTSUP"
unconfined = "ENODATA"
def attack(w):
    value = space(8)
    args = space(struct.pack("QII", ctypes.addressof(value), 8, 0))
    call("getxattrat", AT_FDCWD, name(w.secret), 0, name("user.evil"), args, 16)
