confined = "EPERM"
def attack(w):
    prctl(36, 1)
