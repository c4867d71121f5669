confined = "EPERM"
def attack(w):
    call("shmctl", 0, 14, space(128))
