confined = "EPERM"
def attack(w):
    fd = os.open(w.readable + "/file", os.O_RDONLY)
    call("cachestat", fd, space(16), space(40), 0)
