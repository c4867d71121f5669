confined = "EACCES"
def attack(w):
    os.unlink("file", dir_fd=os.open(w.outside, os.O_PATH))
