confined = "EPERM"
only_root = True
def attack(w):
    call("unshare", 0x80)
