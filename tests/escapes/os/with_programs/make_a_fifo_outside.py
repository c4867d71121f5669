confined = "EACCES"
def attack(w):
    os.mkfifo(w.outside + "/made")
