confined = "EPERM"
def attack(w):
    call("ioprio_get", 1, w.sentinel)
