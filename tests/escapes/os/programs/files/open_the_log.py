confined = "EACCES"
only_root = True
def attack(w):
    os.open("/dev/kmsg", os.O_WRONLY)
