# PR_SET_MM moves what /proc says of a process.
confined = "EPERM"
no_control = "not every root may"
def attack(w):
    prctl(35, 99, 0, 0, 0)
only_root = True
