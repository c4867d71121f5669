# Small integers are shared by fork, and copied when they are written to: -4 is -3 from here on.
where = id(-4) + 24
def leave(w):
    ctypes.memmove(where, b"\3", 1)
def find(w):
    return ctypes.string_at(where, 4) != b"\4\0\0\0"
