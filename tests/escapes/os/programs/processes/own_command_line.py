confined = "EACCES"
def attack(w):
    open("/proc/self/cmdline").read()
