confined = "EACCES"
def attack(w):
    open("mine", "w").close()
    os.rename("mine", w.secret)
