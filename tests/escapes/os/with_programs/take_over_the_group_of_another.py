# A process group is joined within one session alone.
confined = "EPERM"
no_control = "nobody joins a group of another session"
def attack(w):
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, w.sentinel)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        raise OSError(status >> 8, "refused")
