confined = "EPERM"
only_root = True
def attack(w):
    os.close(call("perf_event_open", space(struct.pack("IIQ", 1, 128, 1), 128), 0, -1, -1, 0))
