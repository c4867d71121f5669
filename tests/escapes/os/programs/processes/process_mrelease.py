confined = "EPERM"
unconfined = "EBADF"
def attack(w):
    call("process_mrelease", 999, 0)
