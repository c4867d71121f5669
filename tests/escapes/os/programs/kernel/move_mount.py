confined = "EPERM"
unconfined = "EINVAL"
only_root = True
def attack(w):
    call("move_mount", AT_FDCWD, name(w.outside), AT_FDCWD, name(w.writable), 0)
