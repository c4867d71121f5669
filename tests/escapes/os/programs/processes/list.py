confined = "EACCES"
def attack(w):
    os.listdir("/proc")
