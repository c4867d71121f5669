# What a library asks for by default is private instead: counted, and an error when it is too much.
confined = "ENOMEM"
def attack(w):
    mmap.mmap(-1, 3 << 30)
