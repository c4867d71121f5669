confined = "reached"
gap = "names"
def attack(w):
    os.access(w.secret, os.R_OK) or checked(-errno.EACCES)
