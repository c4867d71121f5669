confined = "EPERM"
unconfined = "ESRCH"
def attack(w):
    os.setpgid(w.sentinel, w.sentinel)
