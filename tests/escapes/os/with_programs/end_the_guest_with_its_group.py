# The guest's snapshots are in that group too: what would have restored the guest.
confined = "EPERM"
no_control = "it would end what runs the control"
def attack(w):
    pid = os.fork()
    if pid == 0:
        try:
            os.kill(0, signal.SIGKILL)
        except OSError as error:
            os._exit(error.errno)
    status = os.waitpid(pid, 0)[1]
    if status:
        raise OSError(status >> 8, "refused")
