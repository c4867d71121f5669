# Memory of the OS kernel's, up to a megabyte a pipe.
confined = "EPERM"
def attack(w):
    fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)
