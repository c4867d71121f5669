confined = "EACCES"
def attack(w):
    os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
