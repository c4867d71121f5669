confined = "EPERM"
only_root = True
def attack(w):
    os.setuid(os.getuid() ^ 1)
