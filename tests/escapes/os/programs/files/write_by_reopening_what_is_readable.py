confined = "EACCES"
def attack(w):
    fd = os.open(w.readable + "/file", os.O_RDONLY)
    os.write(os.open(f"/proc/self/fd/{fd}", os.O_WRONLY), b"x")
