confined = "EPERM"
unconfined = "EBADF"
def attack(w):
    call("pidfd_getfd", 999, 0, 0)
