# Blocks that a file has beyond its size, which RLIMIT_FSIZE does not bound.
confined = "ENOTSUP"
def attack(w):
    with open("file", "wb") as file:
        call("fallocate", file.fileno(), 1, 0, 1 << 20)
        return os.fstat(file.fileno()).st_blocks > 0
