confined = "EPERM"
def attack(w):
    call("sched_setattr", w.sentinel, space(struct.pack("IIQiI", 48, 0, 0, 19, 0), 48), 0)
