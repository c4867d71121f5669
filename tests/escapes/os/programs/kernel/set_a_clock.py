confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("clock_settime", 0, space(struct.pack("qq", 0, 2 * 10**9)))
