confined = "EPERM"
def attack(w):
    call("ioprio_set", 1, w.sentinel, 0x4007)
