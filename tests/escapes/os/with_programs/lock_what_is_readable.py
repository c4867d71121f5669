# An exclusive flock needs no right to write and stops the file's other users.
confined = "ENOSYS"
def attack(w):
    fcntl.flock(os.open(w.readable + "/file", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
