confined = "EPERM"
def attack(w):
    os.kill(w.sentinel, 0)
