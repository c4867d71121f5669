# better locks than it has, claimed while it serves
# ends: protocol
send({"type": "ready", "report": {"achieved": {"landlock": "ABI 99", "seccomp": "all"}, "failed": {}}})
wait()
