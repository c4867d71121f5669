confined = "EPERM"
def attack(w):
    call("tkill", w.sentinel, 0)
