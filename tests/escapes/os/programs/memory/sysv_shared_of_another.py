confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("shmat", 0x7FFFFFF, 0, 0)
