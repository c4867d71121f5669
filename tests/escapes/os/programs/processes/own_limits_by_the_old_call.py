confined = "EPERM"
machine = "x86_64"
def attack(w):
    call("setrlimit", resource.RLIMIT_CORE, space(16))
