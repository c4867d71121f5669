confined = "EACCES"
def attack(w):
    os.stat(f"/proc/{w.sentinel}/exe")
