confined = "EPERM"
def attack(w):
    os.setgid(os.getgid())
