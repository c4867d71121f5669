confined = "EPERM"
machine = "x86_64"
only_root = True
def attack(w):
    call("ioperm", 0x80, 1, 1)
