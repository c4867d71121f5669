confined = "EPERM"
only_root = True
def attack(w):
    os.close(call("open_tree", AT_FDCWD, name(w.outside), 1 | 0x8000))
