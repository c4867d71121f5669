confined = "EPERM"
def attack(w):
    call("pipe2", space(8), 0x80)
