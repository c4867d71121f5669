confined = "EINVAL"
def attack(w):
    os.readlink("/proc/self/exe")
