confined = "EPERM"
only_root = True
unconfined = "EINVAL"
def attack(w):
    call("swapon", name(w.secret), 0)
