confined = "EPERM"
only_root = True
unconfined = "ENOEXEC"
def attack(w):
    call("finit_module", os.open(w.readable + "/file", os.O_RDONLY), name(""), 0)
