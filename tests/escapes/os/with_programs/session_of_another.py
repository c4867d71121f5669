confined = "EPERM"
def attack(w):
    os.getsid(w.sentinel)
