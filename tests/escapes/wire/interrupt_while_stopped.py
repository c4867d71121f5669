# stops itself and is interrupted
# interrupt: once
# timeout: 60
# ends: any
for stop in (lambda: os.kill(os.getpid(), 19), lambda: signal.raise_signal(19), lambda: signal.pthread_kill(threading.get_ident(), 19)):
    try: stop()
    except OSError as error: print(error)
