confined = "EACCES"
def attack(w):
    os.symlink(w.secret, "made")
    print(open("made").read())
