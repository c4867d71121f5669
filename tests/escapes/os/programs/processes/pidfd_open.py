confined = "EPERM"
def attack(w):
    os.pidfd_open(w.sentinel)
