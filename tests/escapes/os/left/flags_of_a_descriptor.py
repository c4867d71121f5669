# They belong to what is open, not to a process: pipes and channel are new for each guest.
def leave(w):
    for fd in (0, 1, 2):
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
def find(w):
    return any(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND for fd in (0, 1, 2))
