# The positive side of the limit: private memory is counted.
confined = "ENOMEM"
def attack(w):
    mapped(3 << 30, 3, 0x4022)
