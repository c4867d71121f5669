confined = "EPERM"
only_root = True
def attack(w):
    call("unshare", 0x20000)
    call("mount", name("none"), name(w.writable), name("tmpfs"), 0, 0)
