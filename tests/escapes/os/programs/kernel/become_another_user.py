confined = "EPERM"
def attack(w):
    os.setuid(os.getuid())
