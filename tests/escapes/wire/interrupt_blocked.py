# interrupts are blocked in every thread; one is enough all the same
# interrupt: once
# timeout: 60
# ends: lost
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
for _ in range(3): threading.Thread(target=wait, daemon=True).start()
while True: time.sleep(1)
