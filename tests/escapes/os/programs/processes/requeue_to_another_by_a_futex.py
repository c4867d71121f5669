confined = "ENOSYS"
unconfined = "EINVAL"
def attack(w):
    call("futex", space(4), 12, 5, 0, 0, 0)
