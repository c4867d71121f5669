confined = "EPERM"
def attack(w):
    call("fchownat", os.open(w.secret, os.O_PATH), name(""), w.uid, w.uid, AT_EMPTY_PATH)
