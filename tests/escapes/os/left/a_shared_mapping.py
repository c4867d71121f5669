# Memory that guest and zygote share would be changed for the next guest too.
def leave(w):
    pass
def find(w):
    kinds = [line.split()[1] for line in open("/proc/self/maps")]
    return not kinds or any(kind[1] == "w" and kind[3] == "s" for kind in kinds)
