confined = "EPERM"
only_root = True
def attack(w):
    os.mknod("made", 0o20600, 0x103)
