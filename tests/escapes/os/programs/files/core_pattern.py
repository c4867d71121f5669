confined = "EACCES"
only_root = True
def attack(w):
    os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)
