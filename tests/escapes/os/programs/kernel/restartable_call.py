# Restarts what was interrupted; nothing was.
confined = "EINTR"
unconfined = "EINTR"
no_control = "allowed: the C library needs it after a stop"
def attack(w):
    call("restart_syscall")
