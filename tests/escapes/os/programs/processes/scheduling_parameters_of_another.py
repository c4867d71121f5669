confined = "EPERM"
def attack(w):
    os.sched_setparam(w.sentinel, os.sched_param(0))
