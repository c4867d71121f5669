confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("pkey_alloc", 99, 0)
