confined = "reached"
gap = "names"
def attack(w):
    call("statx", AT_FDCWD, name(w.secret), 0, 0xFFF, space(256))
