confined = "EBADF"
no_control = "fallocate needs a descriptor for writing, whoever asks"
def attack(w):
    call("fallocate", os.open(w.readable + "/file", os.O_RDONLY), 0, 0, 4096)
