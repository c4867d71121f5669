confined = "EACCES"
def attack(w):
    os.chdir(f"/proc/{w.sentinel}/cwd")
