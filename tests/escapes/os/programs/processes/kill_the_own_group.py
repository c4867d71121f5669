confined = "EPERM"
def attack(w):
    os.kill(0, 0)
