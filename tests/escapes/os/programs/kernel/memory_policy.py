confined = "EPERM"
def attack(w):
    call("set_mempolicy", 0, 0, 0)
