def leave(w):
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    signal.setitimer(signal.ITIMER_VIRTUAL, 1000)
def find(w):
    handled = any(signal.getsignal(n) == signal.SIG_IGN for n in (signal.SIGUSR2, signal.SIGTERM))
    masked = signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return handled or masked or signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0
