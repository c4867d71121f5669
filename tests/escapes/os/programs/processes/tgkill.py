confined = "EPERM"
def attack(w):
    call("tgkill", w.sentinel, w.sentinel, 0)
