confined = "EPERM"
def attack(w):
    os.sched_rr_get_interval(w.sentinel)
