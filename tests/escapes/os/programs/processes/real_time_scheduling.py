confined = "EPERM"
only_root = True
def attack(w):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
