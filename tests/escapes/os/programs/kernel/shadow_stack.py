confined = "EPERM"
machine = "x86_64"
unconfined = "EINVAL"
def attack(w):
    call("arch_prctl", 0x5555, 0)
