confined = "EACCES"
def attack(w):
    os.unlink(w.secret)
