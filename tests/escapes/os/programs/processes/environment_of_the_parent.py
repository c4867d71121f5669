confined = "EACCES"
def attack(w):
    print(open(f"/proc/{os.getppid()}/environ").read())
