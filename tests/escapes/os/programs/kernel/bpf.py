confined = "EPERM"
only_root = True
def attack(w):
    os.close(call("bpf", 0, space(struct.pack("IIIII", 2, 4, 8, 1, 0), 128), 72))
