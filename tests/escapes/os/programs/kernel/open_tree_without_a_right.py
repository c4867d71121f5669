# Without a copy it is open with O_PATH, and needs no capability.
confined = "EPERM"
def attack(w):
    os.close(call("open_tree", AT_FDCWD, name(w.outside), 0))
