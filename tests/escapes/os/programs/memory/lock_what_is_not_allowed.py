# RLIMIT_MEMLOCK holds for uid 0 too, without its capability.
confined = "EPERM"
only_root = True
def attack(w):
    call("mlock", mapped(1 << 25, 3, 0x4022), 1 << 25)
