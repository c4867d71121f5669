confined = "EACCES"
def attack(w):
    os.open(f"/proc/{w.sentinel}/mem", os.O_RDWR)
