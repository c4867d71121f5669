confined = "EACCES"
def attack(w):
    os.listdir(os.path.dirname(os.path.dirname(w.writable)))
