# One cell could lock out the cells after it.
confined = "EPERM"
def attack(w):
    prctl(38, 1)
    code = space(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
    call("seccomp", 1, 0, space(struct.pack("@HP", 1, ctypes.addressof(code))))
