# /dev/zero, mapped shared and writable, is shared anonymous memory.
confined = "EACCES"
def attack(w):
    limited()
    mapped(3 << 30, 3, 1, os.open("/dev/zero", os.O_RDWR))
