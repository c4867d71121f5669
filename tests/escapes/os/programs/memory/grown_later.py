confined = "ENOMEM"
def attack(w):
    call("mremap", mapped(4096, 3, 0x4022), 4096, 3 << 30, 1, 0)
