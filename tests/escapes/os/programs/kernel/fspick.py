confined = "EPERM"
only_root = True
unconfined = "EINVAL"
def attack(w):
    call("fspick", AT_FDCWD, name(w.outside), 0)
