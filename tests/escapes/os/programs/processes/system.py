# What the C library starts by itself, without Python.
confined = "held"
def attack(w):
    return C.system(b"true") == 0
