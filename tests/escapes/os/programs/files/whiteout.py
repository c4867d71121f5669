# RENAME_WHITEOUT leaves a device node.
confined = "EPERM"
only_root = True
def attack(w):
    open("mine", "w").close()
    call("renameat2", AT_FDCWD, name("mine"), AT_FDCWD, name("other"), 4)
