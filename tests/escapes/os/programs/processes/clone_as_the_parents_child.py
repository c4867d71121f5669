# CLONE_PARENT would make a child of the zygote's.
confined = "EPERM"
no_control = "the child would be a stranger's"
def attack(w):
    call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
