# By number: Python's setrlimit looks first and finds another word for it.
confined = "EPERM"
def attack(w):
    call("prlimit64", 0, resource.RLIMIT_CORE, space(16), 0)
