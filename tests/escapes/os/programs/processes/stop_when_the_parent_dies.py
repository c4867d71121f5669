confined = "EPERM"
def attack(w):
    prctl(1, signal.SIGSTOP)
