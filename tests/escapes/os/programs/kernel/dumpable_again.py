confined = "EPERM"
def attack(w):
    prctl(4, 1)
