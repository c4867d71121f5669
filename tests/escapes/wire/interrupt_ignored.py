# no interrupt reaches it; one is enough all the same
# interrupt: once
# timeout: 60
# ends: lost
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass
