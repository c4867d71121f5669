confined = "EPERM"
def attack(w):
    fcntl.fcntl(os.open(w.readable + "/file", os.O_RDONLY), 1036, struct.pack("Q", 2))
