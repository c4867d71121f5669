confined = "EPERM"
only_root = True
unconfined = "ENOEXEC"
def attack(w):
    call("init_module", space(64), 64, name(""))
