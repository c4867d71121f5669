# SIGEV_THREAD_ID; unconfined the OS kernel takes threads of the same process only.
confined = "ENOSYS"
unconfined = "EINVAL"
def attack(w):
    call("timer_create", 1, space(struct.pack("QiiI", 0, signal.SIGURG, 4, w.sentinel), 64), space(8))
