confined = "EACCES"
unconfined = "EPERM"
no_control = "opening it for writing is no harmless thing, and some machines refuse it to root"
def attack(w):
    disks = ("vda", "sda", "nvme0n1", "xvda", "mmcblk0", "loop0")
    os.open(next(f"/dev/{d}" for d in disks if os.path.exists(f"/dev/{d}")), os.O_RDONLY)
