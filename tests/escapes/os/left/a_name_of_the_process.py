def leave(w):
    prctl(15, name("left\x1b[2J"))
def find(w):
    said = space(16)
    prctl(16, said)
    return said.value.startswith(b"left")
