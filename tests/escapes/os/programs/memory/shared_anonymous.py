# RLIMIT_DATA does not count shared memory.
confined = "EPERM"
def attack(w):
    limited()
    mapped(3 << 30, 3, 0x21)
