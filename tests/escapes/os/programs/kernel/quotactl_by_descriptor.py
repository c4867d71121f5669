confined = "EPERM"
unconfined = "EBADF"
def attack(w):
    call("quotactl_fd", 999, 0x80000700, 0, space(64))
