confined = "EACCES"
only_root = True
def attack(w):
    os.open("/dev/userfaultfd" if os.path.exists("/dev/userfaultfd") else "/dev/kmsg", os.O_RDONLY)
