confined = "EPERM"
def attack(w):
    fcntl.fcntl(os.pipe()[0], 10, signal.SIGURG)
