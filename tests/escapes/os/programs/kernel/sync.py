# Waits for every disk of the machine.
confined = "EPERM"
def attack(w):
    call("sync")
