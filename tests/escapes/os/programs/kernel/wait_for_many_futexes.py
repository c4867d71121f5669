confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("futex_waitv", 0, 0, 0, 0, 0)
