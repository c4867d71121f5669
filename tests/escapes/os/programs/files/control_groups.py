confined = "EACCES"
only_root = True
def attack(w):
    os.listdir("/sys/fs/cgroup")
