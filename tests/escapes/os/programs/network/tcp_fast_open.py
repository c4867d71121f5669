# sendto with MSG_FASTOPEN connects without connect.
confined = "EPERM"
def attack(w):
    s = socket.socket()
    s.sendto(b"x", 0x20000000, ("127.0.0.1", w.tcp))
