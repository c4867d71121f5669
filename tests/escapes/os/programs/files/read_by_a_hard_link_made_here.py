confined = "EXDEV"
def attack(w):
    os.link(w.secret, "made")
    print(open("made").read())
