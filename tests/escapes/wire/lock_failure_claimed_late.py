# claims that it never started, so that the host gives up on all guests
# ends: protocol
send({"type": "not_ready", "lock": "seccomp", "detail": "none"})
wait()
