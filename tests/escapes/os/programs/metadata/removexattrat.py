confined = "ENOTSUP"
unconfined = "ENODATA"
def attack(w):
    call("removexattrat", AT_FDCWD, name(w.secret), 0, name("user.evil"))
