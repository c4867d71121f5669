confined = "EPERM"
def attack(w):
    info = space(struct.pack("iii", 0, 0, -1), 128)
    call("rt_tgsigqueueinfo", w.sentinel, w.sentinel, signal.SIGURG, info)
