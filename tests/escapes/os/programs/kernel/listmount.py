confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("listmount", space(32), space(64), 1, 1 << 20)
