confined = "EACCES"
def attack(w):
    os.truncate(w.readable + "/file", 0)
