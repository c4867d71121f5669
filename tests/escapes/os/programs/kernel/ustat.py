confined = "EPERM"
machine = "x86_64"
unconfined = "EINVAL"
def attack(w):
    call("ustat", 0xFFFF, space(64))
