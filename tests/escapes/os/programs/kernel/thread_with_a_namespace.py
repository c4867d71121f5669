confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("clone", 0x3D0F00 | 0x10000000, 0, 0, 0, 0)
