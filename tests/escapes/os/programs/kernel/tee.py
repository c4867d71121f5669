confined = "EPERM"
def attack(w):
    (r, a), (_, b) = os.pipe(), os.pipe()
    os.write(a, b"x")
    call("tee", r, b, 1, 0)
