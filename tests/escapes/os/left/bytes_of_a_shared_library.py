# Library pages are shared until they are written to.
where = ctypes.addressof(ctypes.c_char.in_dll(C, "_libc_intl_domainname"))
def leave(w):
    call("mprotect", where & ~4095, 4096, 7)
    ctypes.memmove(where, b"LEFT", 4)
def find(w):
    return ctypes.string_at(where, 4) == b"LEFT"
