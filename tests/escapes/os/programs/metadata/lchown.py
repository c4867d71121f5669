confined = "EPERM"
def attack(w):
    os.lchown(w.outside + "/link", w.uid, w.uid)
