# both pipes at once, from threads
# ends: any
def pour(fd):
    end = time.monotonic() + 2
    while time.monotonic() < end: os.write(fd, b"x" * 65536)
threads = [threading.Thread(target=pour, args=(fd,)) for fd in (1, 2, 1, 2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
