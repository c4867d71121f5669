confined = "EACCES"
def attack(w):
    print(open(w.secret).read())
