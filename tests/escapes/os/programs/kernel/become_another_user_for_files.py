confined = "EPERM"
def attack(w):
    call("setfsuid", -1)
