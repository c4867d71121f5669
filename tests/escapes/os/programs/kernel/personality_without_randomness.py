# ADDR_NO_RANDOMIZE: kept over exec.
confined = "EPERM"
def attack(w):
    call("personality", 0x40000)
