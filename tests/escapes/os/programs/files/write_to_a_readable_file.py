confined = "EACCES"
def attack(w):
    open(w.readable + "/file", "a").write("x")
