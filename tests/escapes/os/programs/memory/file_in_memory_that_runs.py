confined = "EPERM"
unconfined = "ended with status 0"
def attack(w):
    fd = os.memfd_create("x", 0)
    os.write(fd, open(w.readable + "/program", "rb").read())
    os.execve(fd, ["x"], {})
