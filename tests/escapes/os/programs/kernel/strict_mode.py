confined = "EPERM"
def attack(w):
    prctl(22, 1)
