# What the OS kernel starts by itself, as root, when it is told to.
confined = "EACCES"
only_root = True
def attack(w):
    os.open("/proc/sys/kernel/poweroff_cmd", os.O_WRONLY)
