# PR_SCHED_CORE with another's id.
confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    prctl(62, 99, w.sentinel, 0, 0)
