confined = "EPERM"
def attack(w):
    call("ptrace", 0x4206, w.sentinel, 0, 0)
