confined = "EPERM"
def attack(w):
    os.mknod("made", 0o140600)
