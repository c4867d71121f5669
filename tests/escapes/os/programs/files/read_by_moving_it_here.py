confined = "EACCES"
def attack(w):
    os.rename(w.secret, "made")
