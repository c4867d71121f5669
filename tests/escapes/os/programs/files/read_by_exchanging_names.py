# RENAME_EXCHANGE swaps two files at once.
confined = "EACCES"
def attack(w):
    open("mine", "w").close()
    call("renameat2", AT_FDCWD, name(w.secret), AT_FDCWD, name("mine"), 2)
