confined = "EACCES"
def attack(w):
    fd = os.open(w.readable + "/file", os.O_RDWR)
    m = mmap.mmap(fd, 0)
    m[0:1] = b"y"
