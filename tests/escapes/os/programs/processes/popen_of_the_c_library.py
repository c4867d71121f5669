confined = "held"
def attack(w):
    C.popen.restype = ctypes.c_void_p
    return C.popen(b"true", b"r") is not None
