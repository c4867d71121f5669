confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    fcntl.fcntl(os.open("file", os.O_RDWR), 1033, 1)
