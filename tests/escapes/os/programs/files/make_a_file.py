confined = "EACCES"
def attack(w):
    os.open(w.outside + "/made", os.O_CREAT | os.O_WRONLY)
