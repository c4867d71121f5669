confined = "EPERM"
unconfined = "ESRCH"
def attack(w):
    os.setpriority(os.PRIO_USER, 12345, 5)
