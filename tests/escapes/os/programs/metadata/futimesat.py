confined = "EPERM"
machine = "x86_64"
def attack(w):
    call("futimesat", AT_FDCWD, name(w.secret), 0)
