confined = "EPERM"
unconfined = "ENODEV"
def attack(w):
    call("quotactl", 0x80000700, name(w.writable + "/nothing"), 0, space(64))
unconfined = "ENOENT"
