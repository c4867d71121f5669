confined = "EACCES"
def attack(w):
    print(open(w.readable + "/link").read())
