confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    prctl(47, 99, 0, 0, 0)
