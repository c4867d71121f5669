confined = "EPERM"
def attack(w):
    os.sched_getscheduler(w.sentinel)
