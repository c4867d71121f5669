confined = "EPERM"
def attack(w):
    call("fchmodat", AT_FDCWD, name(w.secret), 0o666)
