confined = "EPERM"
def attack(w):
    call("nfsservctl", 0, 0, 0)
