confined = "EPERM"
def attack(w):
    s = socket.socket(socket.AF_INET6)
    s.connect(("::1", w.tcp6))
