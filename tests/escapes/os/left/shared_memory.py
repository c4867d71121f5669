def leave(w):
    for make in (lambda: call("shmget", 0x1EF7, 4096, 0o1600), lambda: call("semget", 0x1EF7, 1, 0o1600), lambda: call("msgget", 0x1EF7, 0o1600), lambda: open("/dev/shm/left", "w"), lambda: call("mq_open", name("left"), os.O_CREAT | os.O_RDWR, 0o600, 0)):
        try:
            make()
        except OSError:
            pass
def find(w):
    return os.path.exists("/dev/shm/left") or os.path.exists("/dev/mqueue/left")
