confined = "EACCES"
def attack(w):
    open(w.secret, "a").write("x")
