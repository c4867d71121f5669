confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("file_getattr", AT_FDCWD, name(w.secret), space(24), 24, 0x40000000)
