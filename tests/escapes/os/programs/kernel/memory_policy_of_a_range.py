confined = "EPERM"
def attack(w):
    call("mbind", mapped(4096, 3, 0x22), 4096, 0, 0, 0, 0)
