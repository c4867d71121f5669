confined = "EACCES"
only_root = True
def attack(w):
    os.listdir("/proc/sys/fs/binfmt_misc")
