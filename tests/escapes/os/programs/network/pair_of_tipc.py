confined = "EPERM"
unconfined = "EAFNOSUPPORT"
no_control = "few OS kernels have it"
def attack(w):
    call("socketpair", 30, 1, 0, space(8))
