confined = "EPERM"
def attack(w):
    os.sched_setaffinity(w.sentinel, os.sched_getaffinity(0))
