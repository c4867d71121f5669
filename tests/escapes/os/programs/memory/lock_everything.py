confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("mlockall", 0)
