confined = "ENOTSUP"
def attack(w):
    os.setxattr(os.open(w.readable + "/file", os.O_RDONLY), "user.evil", b"1")
