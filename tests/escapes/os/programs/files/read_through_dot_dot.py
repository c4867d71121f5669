confined = "EACCES"
def attack(w):
    print(open(os.path.relpath(w.secret, w.writable)).read())
