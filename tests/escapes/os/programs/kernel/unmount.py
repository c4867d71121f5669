confined = "EPERM"
only_root = True
unconfined = "EINVAL"
def attack(w):
    call("umount2", name(w.writable), 0)
