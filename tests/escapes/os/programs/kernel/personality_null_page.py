confined = "EPERM"
def attack(w):
    call("personality", 0x100000)
