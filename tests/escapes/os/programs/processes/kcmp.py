# Orders what two processes hold: where the OS kernel's objects lie.
confined = "EPERM"
def attack(w):
    call("kcmp", os.getpid(), w.sentinel, 0, 0, 0)
