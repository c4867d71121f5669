confined = "EPERM"
def attack(w):
    os.chown(w.secret, w.uid, w.uid)
