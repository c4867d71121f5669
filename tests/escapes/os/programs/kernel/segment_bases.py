confined = "EPERM"
machine = "x86_64"
def attack(w):
    call("arch_prctl", 0x1003, space(8))
