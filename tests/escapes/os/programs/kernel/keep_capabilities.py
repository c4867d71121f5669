confined = "EPERM"
def attack(w):
    prctl(8, 1)
