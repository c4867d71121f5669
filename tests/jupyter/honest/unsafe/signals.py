import faulthandler, os, signal, threading
seen = []
old = signal.signal(signal.SIGUSR1, lambda n, f: seen.append(n))
signal.raise_signal(signal.SIGUSR1); os.kill(os.getpid(), signal.SIGUSR1); signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
alarm = signal.signal(signal.SIGALRM, lambda n, f: seen.append(n))
signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()
signal.alarm(0); signal.signal(signal.SIGALRM, alarm); signal.signal(signal.SIGUSR1, old)
assert len(seen) == 4
with open(os.devnull, "w") as null:
    faulthandler.dump_traceback(null)
