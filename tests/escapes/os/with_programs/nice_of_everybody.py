confined = "EPERM"
def attack(w):
    os.getpriority(os.PRIO_USER, 0)
