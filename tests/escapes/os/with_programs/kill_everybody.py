confined = "EPERM"
def attack(w):
    os.kill(-1, 0)
