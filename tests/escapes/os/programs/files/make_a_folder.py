confined = "EACCES"
def attack(w):
    os.mkdir(w.outside + "/made")
