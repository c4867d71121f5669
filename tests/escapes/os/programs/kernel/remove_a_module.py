confined = "EPERM"
only_root = True
unconfined = "ENOENT"
def attack(w):
    call("delete_module", name("cellblock_none"), 0)
