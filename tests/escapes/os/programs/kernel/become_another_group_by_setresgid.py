confined = "EPERM"
def attack(w):
    os.setresgid(-1, -1, -1)
