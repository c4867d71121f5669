confined = "EACCES"
def attack(w):
    print(open(f"/proc/{w.sentinel}/environ").read())
