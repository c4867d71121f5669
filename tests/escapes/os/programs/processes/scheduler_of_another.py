confined = "EPERM"
def attack(w):
    os.sched_setscheduler(w.sentinel, os.SCHED_BATCH, os.sched_param(0))
