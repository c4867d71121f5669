confined = "EPERM"
def attack(w):
    os.getpriority(os.PRIO_PROCESS, w.sentinel)
