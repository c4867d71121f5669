confined = "EPERM"
def attack(w):
    call("shmctl", call("shmget", 0, 4096, 0o1600), 0, 0)
