# blocks interrupts and outlives its time
# ends: timeout
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
while True: pass
