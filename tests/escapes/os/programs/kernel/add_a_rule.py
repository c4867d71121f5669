confined = "EPERM"
unconfined = "EBADF"
def attack(w):
    call("landlock_add_rule", 999, 1, space(12), 0)
