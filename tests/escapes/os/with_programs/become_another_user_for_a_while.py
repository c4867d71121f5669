confined = "EPERM"
only_root = True
def attack(w):
    os.setresuid(-1, os.getuid() ^ 1, -1)
