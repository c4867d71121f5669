confined = "EPERM"
def attack(w):
    os.setpriority(os.PRIO_PGRP, w.sentinel, 5)
