# TIOCSCTTY
confined = "EPERM"
unconfined = "ENOTTY"
def attack(w):
    fcntl.ioctl(os.pipe()[0], 0x540E, 0)
