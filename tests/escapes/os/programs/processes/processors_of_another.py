confined = "ENOSYS"
def attack(w):
    return len(os.sched_getaffinity(w.sentinel)) > 0
