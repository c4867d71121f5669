confined = "EPERM"
unconfined = "EBADF"
def attack(w):
    call("io_uring_enter", 999, 0, 0, 0, 0, 0)
