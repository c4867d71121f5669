# Opened for reading it can be mapped, and never becomes writable.
confined = "EACCES"
no_control = "refused to everybody; memory/shared_zeros is the way that works"
def attack(w):
    call("mprotect", mapped(1 << 20, 1, 1, os.open("/dev/zero", os.O_RDONLY)), 1 << 20, 3)
