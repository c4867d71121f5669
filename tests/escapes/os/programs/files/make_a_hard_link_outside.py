confined = "EACCES"
def attack(w):
    open("mine", "w").close()
    os.link("mine", w.outside + "/made")
