# A stopped guest is a hung kernel.
confined = "EPERM"
unconfined = "stopped"
def attack(w):
    os.kill(os.getpid(), signal.SIGSTOP)
