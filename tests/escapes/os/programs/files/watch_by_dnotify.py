# F_NOTIFY sends a signal when a folder changes.
confined = "EPERM"
def attack(w):
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(os.open(w.readable, os.O_RDONLY), fcntl.F_NOTIFY, 4)
