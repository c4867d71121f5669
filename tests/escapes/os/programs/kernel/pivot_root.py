confined = "EPERM"
only_root = True
unconfined = "ENOTDIR"  # with folders it depends on which file systems they are on
def attack(w):
    call("pivot_root", name("/proc/self/status"), name("/proc/self/status"))
