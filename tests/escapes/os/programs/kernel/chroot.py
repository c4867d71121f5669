confined = "EPERM"
only_root = True
def attack(w):
    os.chroot(w.outside)
