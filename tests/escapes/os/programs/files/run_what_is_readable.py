confined = "EPERM"
unconfined = "ended with status 0"
def attack(w):
    os.execve(w.readable + "/program", ["program"], {})
