confined = "ENOTSUP"
def attack(w):
    os.listxattr(w.secret)
