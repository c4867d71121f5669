confined = "EPERM"
def attack(w):
    os.utime(os.open(w.readable + "/file", os.O_RDONLY), (1, 1))
