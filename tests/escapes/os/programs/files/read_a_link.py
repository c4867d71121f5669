# Where a link leads is contents, not a name.
confined = "EINVAL"
def attack(w):
    os.readlink(w.outside + "/link")
