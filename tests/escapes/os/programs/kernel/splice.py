confined = "EPERM"
def attack(w):
    (r, a), (_, b) = os.pipe(), os.pipe()
    os.write(a, b"x")
    call("splice", r, 0, b, 0, 1, 0)
