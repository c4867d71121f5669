confined = "EPERM"
unconfined = "ended with status 0"
def attack(w):
    argv = (ctypes.c_char_p * 2)(b"true", None)
    call("execveat", AT_FDCWD, name("/bin/true"), ctypes.addressof(argv), 0, 0)
