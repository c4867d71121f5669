# A shared mapping of a file opened for reading can't be made writable.
confined = "EACCES"
unconfined = "EACCES"
no_control = "refused to everybody; the writable mapping is the next file"
def attack(w):
    fd = os.open(w.readable + "/file", os.O_RDONLY)
    address = mapped(4096, 1, 1, fd)
    call("mprotect", address, 4096, 3)
