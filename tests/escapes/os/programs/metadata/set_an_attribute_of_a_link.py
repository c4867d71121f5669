confined = "ENOTSUP"
unconfined = "EPERM"
def attack(w):
    os.setxattr(w.outside + "/link", "user.evil", b"1", follow_symlinks=False)
