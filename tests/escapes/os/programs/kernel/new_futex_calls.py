confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("futex_wake", 0, 0, 0, 0xFFFF)
