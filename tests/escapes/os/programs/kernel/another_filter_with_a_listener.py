# Whoever holds a listener answers calls as it likes.
confined = "EPERM"
def attack(w):
    prctl(38, 1)
    code = space(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
    call("seccomp", 1, 8, space(struct.pack("@HP", 1, ctypes.addressof(code))))
