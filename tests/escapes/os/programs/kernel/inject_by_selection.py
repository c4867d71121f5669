# TIOCLINUX pastes into a console.
confined = "EPERM"
unconfined = "ENOTTY"
def attack(w):
    fcntl.ioctl(os.pipe()[0], 0x541C, b"\x03")
