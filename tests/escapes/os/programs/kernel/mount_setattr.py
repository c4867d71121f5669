confined = "EPERM"
only_root = True
unconfined = "EINVAL"
def attack(w):
    call("mount_setattr", AT_FDCWD, name(w.outside), 0, space(struct.pack("QQQQ", 1, 0, 0, 0)), 32)
