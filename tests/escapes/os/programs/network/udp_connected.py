confined = "EPERM"
def attack(w):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("127.0.0.1", w.udp))
    s.send(b"x")
