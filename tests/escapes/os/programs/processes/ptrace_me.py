confined = "EPERM"
def attack(w):
    call("ptrace", 0, 0, 0, 0)
