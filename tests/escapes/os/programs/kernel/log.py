confined = "EPERM"
only_root = True
def attack(w):
    call("syslog", 10, 0, 0)
