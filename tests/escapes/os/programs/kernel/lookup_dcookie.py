confined = "EPERM"
def attack(w):
    call("lookup_dcookie", 1, space(64), 64)
