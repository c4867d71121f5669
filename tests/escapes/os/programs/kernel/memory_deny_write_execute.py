# For good, and cells after this one need it.
confined = "EPERM"
def attack(w):
    prctl(65, 1, 0, 0, 0)
