confined = "EACCES"
def attack(w):
    fd = os.open(w.readable + "/file", os.O_RDONLY)
    os.write(os.open(f"/dev/fd/{fd}", os.O_RDWR), b"x")
