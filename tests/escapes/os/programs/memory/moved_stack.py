# A piece of the first thread's stack stays one that grows when it is moved, whatever its size.
confined = "ENOMEM"
def attack(w):
    limited()
    libc = ctypes.CDLL(None)
    libc.getauxval.restype = ctypes.c_ulong
    start = libc.getauxval(25) & ~4095  # AT_RANDOM
    try:
        with open("/proc/self/maps") as maps:  # the end that nobody uses, where that is known
            start = next(int(line.split("-")[0], 16) for line in maps if "[stack]" in line)
    except OSError:
        pass
    call("mremap", start, 4096, 3 << 30, 1, 0)
