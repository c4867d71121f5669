confined = "EPERM"
only_root = True
unconfined = "EINVAL"
def attack(w):
    call("swapoff", name(w.secret))
