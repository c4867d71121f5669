confined = "EPERM"
def attack(w):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    s.connect(("127.0.0.1", w.tcp))
