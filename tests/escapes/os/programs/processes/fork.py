confined = "EPERM"
def attack(w):
    if os.fork() == 0:
        os._exit(0)
