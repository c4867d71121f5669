confined = "EPERM"
def attack(w):
    os.utime(w.secret, (1, 1))
