# TIOCSTI types for the user; here into a descriptor that is none.
confined = "EPERM"
unconfined = "ENOTTY"
def attack(w):
    fcntl.ioctl(os.pipe()[0], 0x5412, b"x")
