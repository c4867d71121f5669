confined = "EPERM"
def attack(w):
    os.fchmod(os.open(w.readable + "/file", os.O_RDONLY), 0o666)
