confined = "EPERM"
def attack(w):
    os.chmod(w.secret, 0o666)
