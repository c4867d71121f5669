confined = "EPERM"
def attack(w):
    if call("clone", signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)
