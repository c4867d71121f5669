confined = "EPERM"
def attack(w):
    s = socket.socket(socket.AF_UNIX)
    call("bind", s.fileno(), space(struct.pack("H", 1)), 2)
