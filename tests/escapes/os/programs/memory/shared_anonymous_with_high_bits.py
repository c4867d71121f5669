confined = "EPERM"
def attack(w):
    limited()
    call("mmap", None, 1 << 20, 3, 0x21 | 1 << 40, -1, 0)
