confined = "ENOTSUP"
def attack(w):
    os.setxattr(w.secret, "user.evil", b"1")
