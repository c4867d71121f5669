kept_open = []
def leave(w):
    file = open(w.writable + "/locked", "w")
    fcntl.lockf(file, fcntl.LOCK_EX)
    kept_open.append(file)
def find(w):
    with open(w.writable + "/locked", "a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
