confined = "EPERM"
only_root = True
unconfined = "EINVAL"
def attack(w):
    call("reboot", 0, 0, 0, 0)
