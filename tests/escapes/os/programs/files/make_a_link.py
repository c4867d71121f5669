confined = "EACCES"
def attack(w):
    os.symlink("/etc/passwd", w.outside + "/made")
