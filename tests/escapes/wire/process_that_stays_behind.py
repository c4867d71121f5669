# tries to leave a process behind that keeps the channel open
# ends: any
for call in (os.fork, getattr(os, "forkpty", os.fork)):
    try:
        if call() == 0: time.sleep(60); os._exit(0)
    except OSError: pass
