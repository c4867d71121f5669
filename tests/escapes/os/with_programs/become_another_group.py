confined = "EPERM"
only_root = True
def attack(w):
    os.setresgid(os.getgid() ^ 1, -1, -1)
