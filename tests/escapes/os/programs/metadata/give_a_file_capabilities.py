confined = "ENOTSUP"
only_root = True
def attack(w):
    os.setxattr("program", "security.capability", struct.pack("<5I", 0x2000001, 0x3FFFFFF, 0, 0x1FF, 0))
