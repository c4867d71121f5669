confined = "held"
def attack(w):
    os.nice(7)
    return os.getpriority(os.PRIO_PROCESS, 0) >= 7
