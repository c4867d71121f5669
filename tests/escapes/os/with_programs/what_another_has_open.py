confined = "EACCES"
def attack(w):
    return os.readlink(f"/proc/{w.sentinel}/exe") != ""
