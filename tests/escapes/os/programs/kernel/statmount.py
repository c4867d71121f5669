confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("statmount", space(32), space(64), 64, 1)
