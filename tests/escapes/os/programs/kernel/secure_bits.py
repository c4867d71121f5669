confined = "EPERM"
only_root = True
def attack(w):
    prctl(28, 0)
