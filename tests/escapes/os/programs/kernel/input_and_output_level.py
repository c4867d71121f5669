confined = "EPERM"
machine = "x86_64"
only_root = True
def attack(w):
    call("iopl", 3)
