confined = "EPERM"
def attack(w):
    prctl(41, 1, 0, 0, 0)
