confined = "held"
no_control = "few OS kernels are built with x32"
machine = "x86_64"
def attack(w):
    for number in range(1024):
        try:
            call(0x40000000 | number, -1, -1, -1, -1, -1, -1)
            return True
        except OSError as error:
            if error.errno != errno.ENOSYS:
                return True
    return False
