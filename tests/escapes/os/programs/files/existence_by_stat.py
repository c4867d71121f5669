# Disclosed: names, sizes and times can be looked up. Landlock has no right for it.
confined = "reached"
gap = "names"
def attack(w):
    os.stat(w.secret)
