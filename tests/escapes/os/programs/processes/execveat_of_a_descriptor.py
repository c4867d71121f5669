# fexecve: no path at all.
confined = "EPERM"
unconfined = "ended with status 0"
def attack(w):
    argv = (ctypes.c_char_p * 2)(b"true", None)
    fd = os.open(w.readable + "/program", os.O_PATH)
    call("execveat", fd, name(""), ctypes.addressof(argv), 0, AT_EMPTY_PATH)
