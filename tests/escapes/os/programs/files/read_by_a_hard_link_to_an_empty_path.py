confined = "EXDEV"
# Since Linux 6.10 whoever opened a descriptor may link it without a capability.
only_root = True
def attack(w):
    call("linkat", os.open(w.secret, os.O_PATH), name(""), AT_FDCWD, name("made"), AT_EMPTY_PATH)
