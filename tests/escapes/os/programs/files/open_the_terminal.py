confined = "EACCES"
unconfined = "ENXIO"
def attack(w):
    os.open("/dev/tty", os.O_RDWR)
