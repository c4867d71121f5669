confined = "EPERM"
def attack(w):
    mapped(1 << 20, 1, 0x21)
