# Linux 6.17: the flags of FS_IOC_FSSETXATTR by path.
confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("file_setattr", AT_FDCWD, name(w.secret), space(24), 24, 0x40000000)
