confined = "EPERM"
def attack(w):
    call("mincore", 0, 0, 0)
