confined = "EPERM"
def attack(w):
    call("membarrier", 0, 0, 0)
