# F_SETOWN makes the OS kernel signal whom one names.
confined = "EPERM"
def attack(w):
    fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, w.sentinel)
