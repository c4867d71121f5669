# It writes as long as it runs, and it must not run longer than its guest.
def leave(w):
    def write():
        while True:
            with open(w.writable + "/ticking", "w") as file:
                file.write(str(time.monotonic()))
            time.sleep(0.01)
    threading.Thread(target=write, daemon=True).start()
    time.sleep(0.05)
def find(w):
    def seen():
        return open(w.writable + "/ticking").read()
    before = seen()
    time.sleep(0.1)
    return seen() != before
