confined = "EACCES"
only_root = True
def attack(w):
    devices = ("/dev/mem", "/proc/kcore", "/dev/port", "/dev/hwrng", "/dev/cpu_dma_latency")
    os.open(next(d for d in devices if os.path.exists(d)), os.O_RDONLY)
