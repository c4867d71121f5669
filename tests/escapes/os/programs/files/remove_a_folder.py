confined = "EACCES"
unconfined = "ENOTEMPTY"
def attack(w):
    os.rmdir(w.outside + "/folder")
