confined = "EACCES"
def attack(w):
    os.rename(w.outside + "/folder", "made")
