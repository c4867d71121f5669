confined = "EPERM"
only_root = True
def attack(w):
    mapped(4096, 3, 0x32)
