# Mapped without a right to it, nothing is counted; it is when it is made writable.
confined = "ENOMEM"
def attack(w):
    call("mprotect", mapped(3 << 30, 0, 0x4022), 3 << 30, 3)
