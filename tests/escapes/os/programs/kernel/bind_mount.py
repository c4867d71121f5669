confined = "EPERM"
only_root = True
def attack(w):
    call("unshare", 0x20000)
    call("mount", name(w.outside), name(w.writable), 0, 0x1000, 0)
