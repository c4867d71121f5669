confined = "EPERM"
no_control = "who has no capability raises none, confined or not"
def attack(w):
    for most in (0, 1):  # by number: Python's setrlimit has another word for it
        call("prlimit64", 0, resource.RLIMIT_CORE, space(struct.pack("QQ", most, most)), 0)
