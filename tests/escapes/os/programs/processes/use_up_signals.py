# Signals that wait count for all programs of the user: who takes them all leaves the others none.
confined = "EAGAIN"
def attack(w):
    number = signal.SIGRTMIN + 5
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        for _ in range(3000):
            call("tgkill", os.getpid(), threading.get_native_id(), number)
    finally:
        while signal.sigtimedwait([number], 0):
            pass
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
