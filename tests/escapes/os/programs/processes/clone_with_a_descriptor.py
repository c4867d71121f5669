confined = "EPERM"
no_control = "as processes/clone"
def attack(w):
    call("clone", 0x1000 | signal.SIGCHLD, 0, space(4), 0, 0)
