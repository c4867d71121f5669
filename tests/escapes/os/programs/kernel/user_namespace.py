confined = "EPERM"
def attack(w):
    call("unshare", 0x10000000)
