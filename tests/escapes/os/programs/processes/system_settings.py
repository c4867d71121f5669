confined = "EACCES"
def attack(w):
    open("/proc/sys/kernel/random/boot_id").read()
