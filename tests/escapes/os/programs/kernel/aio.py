confined = "EPERM"
def attack(w):
    call("io_setup", 1, space(8))
