confined = "EPERM"
def attack(w):
    os.kill(os.getppid(), 0)
