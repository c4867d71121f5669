confined = "EINVAL"
unconfined = "EINVAL"
no_control = "ftruncate needs a descriptor for writing, whoever asks"
def attack(w):
    os.ftruncate(os.open(w.readable + "/file", os.O_RDONLY), 0)
