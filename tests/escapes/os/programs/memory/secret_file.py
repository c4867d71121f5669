confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("memfd_secret", 0xFFFF)
