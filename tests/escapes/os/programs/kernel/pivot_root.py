confined = "EPERM"
only_root = True
unconfined = "EBUSY"
def attack(w):
    call("pivot_root", name(w.writable), name(w.writable))
