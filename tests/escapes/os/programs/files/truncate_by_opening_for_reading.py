# O_RDONLY | O_TRUNC empties the file; Landlock below ABI 3 does not see it.
confined = "EPERM"
def attack(w):
    os.open(w.readable + "/file", os.O_RDONLY | os.O_TRUNC)
