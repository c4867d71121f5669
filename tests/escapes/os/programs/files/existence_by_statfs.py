confined = "reached"
gap = "names"
def attack(w):
    os.statvfs(w.secret)
