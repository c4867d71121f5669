"""P2: the C library's environment, which Python's copy may differ from."""

POLICY = "unsafe"


def attack(door):
    code = """
    import ctypes
    where = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    n = 0
    while where and where[n]:
        print(where[n]); n += 1
    """
    door.run(code)
