confined = "EACCES"
def attack(w):
    os.open(f"/proc/{w.sentinel}/fd/0", os.O_RDONLY)
