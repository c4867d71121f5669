confined = "EPERM"
only_root = True
unconfined = "EISDIR"
def attack(w):
    call("acct", name(w.outside))
