confined = "EPERM"
def attack(w):
    call("semctl", call("semget", 0, 1, 0o1600), 0, 0)
