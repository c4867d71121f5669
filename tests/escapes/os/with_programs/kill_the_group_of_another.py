confined = "EPERM"
def attack(w):
    os.killpg(w.sentinel, 0)
