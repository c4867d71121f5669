confined = "ENOSYS"
no_control = "few OS kernels are built with x32"
machine = "x86_64"
def attack(w):
    call(0x40000000 | 39)
