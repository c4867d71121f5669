confined = "EBADF"
no_control = "a lock for writing needs a descriptor for writing, whoever asks"
def attack(w):
    fcntl.lockf(os.open(w.readable + "/file", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
