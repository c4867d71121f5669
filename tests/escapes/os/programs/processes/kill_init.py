confined = "EPERM"
only_root = True
def attack(w):
    os.kill(1, 0)
