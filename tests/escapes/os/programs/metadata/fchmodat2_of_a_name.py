# AT_EMPTY_PATH needs no right but O_PATH.
confined = "EPERM"
def attack(w):
    call("fchmodat2", os.open(w.secret, os.O_PATH), name(""), 0o666, AT_EMPTY_PATH)
