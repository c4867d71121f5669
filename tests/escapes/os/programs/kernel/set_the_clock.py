confined = "EPERM"
only_root = True
def attack(w):
    call("settimeofday", 0, 0)
