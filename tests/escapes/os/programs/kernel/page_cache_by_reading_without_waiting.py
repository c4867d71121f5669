# RWF_NOWAIT fails for what is not in memory: an oracle for what others have read.
confined = "ENOTSUP"
def attack(w):
    fd = os.open(w.readable + "/file", os.O_RDONLY)
    into = space(8)
    vector = space(struct.pack("QQ", ctypes.addressof(into), 8))
    call("preadv2", fd, vector, 1, 0, 0, 8)
