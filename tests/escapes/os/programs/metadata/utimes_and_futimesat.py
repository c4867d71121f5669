confined = "EPERM"
machine = "x86_64"
def attack(w):
    call("utimes", name(w.secret), 0)
