confined = "EPERM"
def attack(w):
    here = space(b"x")
    call("vmsplice", os.pipe()[1], space(struct.pack("QQ", ctypes.addressof(here), 1)), 1, 0)
