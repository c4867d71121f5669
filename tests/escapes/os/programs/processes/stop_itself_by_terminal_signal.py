confined = "EPERM"
def attack(w):
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGTSTP)
