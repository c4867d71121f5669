# Pages of a mapping that grows down count as stack, which RLIMIT_DATA does not.
confined = "EPERM"
def attack(w):
    limited()
    mapped(3 << 30, 3, 0x4122)
