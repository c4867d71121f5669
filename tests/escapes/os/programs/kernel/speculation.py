confined = "EPERM"
unconfined = "ENODEV"
def attack(w):
    prctl(53, 99, 0, 0, 0)
