confined = "EPERM"
def attack(w):
    call("adjtimex", space(256))
