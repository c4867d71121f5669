confined = "EPERM"
def attack(w):
    call("personality", 0x400000)
