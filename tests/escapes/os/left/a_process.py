def leave(w):
    for start in (os.fork, lambda: C.fork(), lambda: call("clone", 17, 0, 0, 0, 0)):
        try:
            if start() == 0:
                time.sleep(30)
                os._exit(0)
        except OSError:
            pass
def find(w):
    try:
        return os.waitpid(-1, os.WNOHANG) is not None
    except ChildProcessError:
        return False
