confined = "EPERM"
def attack(w):
    os.umask(0)
    os.open("made", os.O_CREAT | os.O_WRONLY, 0o4755)
