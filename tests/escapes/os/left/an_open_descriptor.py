def leave(w):
    for target in range(30, 200):
        os.dup2(1, target)
        os.set_inheritable(target, True)
def find(w):
    for fd in range(30, 200):
        try:
            os.fstat(fd)
            return True
        except OSError:
            continue
