confined = "EPERM"
unconfined = "EBADF"
def attack(w):
    call("setns", 999, 0x20000)
