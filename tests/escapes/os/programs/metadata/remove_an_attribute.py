confined = "ENOTSUP"
unconfined = "ENODATA"
def attack(w):
    os.removexattr(w.secret, "user.evil")
