# O_PATH opens anything, and getdents does not take what it opens.
confined = "EBADF"
no_control = "O_PATH descriptors can't be listed by anybody"
def attack(w):
    call("getdents64", os.open(w.outside, os.O_PATH), space(4096), 4096)
