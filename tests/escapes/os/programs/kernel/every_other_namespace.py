confined = "EPERM"
only_root = True
def attack(w):
    call("unshare", 0x20000 | 0x4000000 | 0x8000000 | 0x40000000 | 0x2000000)
