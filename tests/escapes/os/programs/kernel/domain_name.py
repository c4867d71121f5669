confined = "EPERM"
only_root = True
unconfined = "EINVAL"
def attack(w):
    call("setdomainname", space(b"x"), 9999)
