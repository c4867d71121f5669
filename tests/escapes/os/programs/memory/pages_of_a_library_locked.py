# Pages of files count for no process, since they can be had back; not when they are locked.
confined = "EPERM"
def attack(w):
    with open(os.__file__, "rb") as file:
        at = mapped(4096, 1, 2, file.fileno())
    call("mlock", at, 4096)
