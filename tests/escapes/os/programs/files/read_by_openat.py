confined = "EACCES"
def attack(w):
    folder = os.open(w.outside, os.O_PATH)
    print(os.read(os.open("file", os.O_RDONLY, dir_fd=folder), 100))
