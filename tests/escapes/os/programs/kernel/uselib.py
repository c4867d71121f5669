# Loads a library by path; gone from most OS kernels.
confined = "EPERM"
machine = "x86_64"
def attack(w):
    call("uselib", name(w.secret))
