confined = "EACCES"
def attack(w):
    fd = os.open(f"/dev/shm/{w.host}", os.O_CREAT | os.O_RDWR)
    os.unlink(f"/dev/shm/{w.host}")
