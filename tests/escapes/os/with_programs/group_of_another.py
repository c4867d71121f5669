confined = "EPERM"
def attack(w):
    os.getpgid(w.sentinel)
