confined = "EPERM"
machine = "x86_64"
def attack(w):
    call("_sysctl", 0)
