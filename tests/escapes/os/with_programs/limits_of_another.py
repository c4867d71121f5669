confined = "EPERM"
def attack(w):
    resource.prlimit(w.sentinel, resource.RLIMIT_CORE)
