# timer_create delivers any signal, SIGSTOP too, after it is forgotten who asked.
confined = "ENOSYS"
def attack(w):
    call("timer_create", 1, space(struct.pack("QiiI", 0, signal.SIGURG, 0, 0), 64), space(8))
