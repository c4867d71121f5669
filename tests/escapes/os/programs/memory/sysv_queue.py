confined = "EPERM"
def attack(w):
    call("msgctl", call("msgget", 0, 0o1600), 0, 0)
