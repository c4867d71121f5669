confined = "EPERM"
def attack(w):
    call("sched_getattr", w.sentinel, space(48), 48, 0)
