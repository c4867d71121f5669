confined = "held"
def attack(w):
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return os.sched_getscheduler(0) == os.SCHED_IDLE
