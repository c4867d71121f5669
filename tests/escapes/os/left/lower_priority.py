def leave(w):
    os.nice(7)
    os.umask(0o777)
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
def find(w):
    mask = os.umask(0)
    os.umask(mask)
    return os.getpriority(os.PRIO_PROCESS, 0) >= 7 or mask == 0o777
