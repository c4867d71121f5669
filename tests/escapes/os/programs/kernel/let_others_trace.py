# PR_SET_PTRACER
confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    prctl(0x59616D61, -1)
