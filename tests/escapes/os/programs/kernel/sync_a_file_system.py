confined = "EPERM"
def attack(w):
    call("syncfs", os.open(w.readable, os.O_RDONLY))
