# The devices that are open to the guest take no command.
confined = "EPERM"
def attack(w):
    fcntl.ioctl(os.open("/dev/urandom", os.O_RDONLY), 0x80045200, bytes(4))
