# A descriptor of /proc/PID serves as well as one of pidfd_open.
confined = "EPERM"
unconfined = "EBADF"
def attack(w):
    call("pidfd_send_signal", os.open(f"/proc/{w.sentinel}", os.O_PATH), 0, 0, 0)
