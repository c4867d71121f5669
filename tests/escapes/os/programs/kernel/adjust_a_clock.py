confined = "EPERM"
def attack(w):
    call("clock_adjtime", 0, space(256))
