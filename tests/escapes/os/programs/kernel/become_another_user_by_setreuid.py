confined = "EPERM"
def attack(w):
    os.setreuid(-1, -1)
