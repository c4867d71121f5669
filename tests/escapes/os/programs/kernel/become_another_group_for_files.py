confined = "EPERM"
def attack(w):
    call("setfsgid", -1)
