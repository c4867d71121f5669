confined = "EPERM"
def attack(w):
    call("fcntl", os.pipe()[0], 15, space(struct.pack("ii", 1, w.sentinel)))
