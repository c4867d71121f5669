confined = "EACCES"
def attack(w):
    print(len(open(f"/proc/{os.getppid()}/maps").read()))
