confined = "EPERM"
def attack(w):
    os.fchown(os.open(w.readable + "/file", os.O_RDONLY), w.uid, w.uid)
