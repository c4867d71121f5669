confined = "EPERM"
def attack(w):
    os.setpriority(os.PRIO_PROCESS, w.sentinel, 5)
