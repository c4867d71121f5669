confined = "EPERM"
def attack(w):
    prctl(29, 50000)
