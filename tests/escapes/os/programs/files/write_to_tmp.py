confined = "EACCES"
def attack(w):
    os.close(os.open(f"/tmp/{w.host}-made", os.O_CREAT | os.O_RDWR))
    os.unlink(f"/tmp/{w.host}-made")
