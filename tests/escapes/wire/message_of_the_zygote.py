# the end of a process that it does not own, as only a zygote may tell
# ends: protocol
send({"type": "reaped", "pid": os.getppid(), "status": 0})
wait()
