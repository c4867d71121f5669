# The OS kernel looks at the low 32 bits of a command.
confined = "EPERM"
unconfined = "ENOTTY"
def attack(w):
    call("ioctl", os.pipe()[0], 0x5412 | 1 << 40, space(b"x"))
