confined = "EPERM"
def attack(w):
    socket.create_connection(("127.0.0.1", w.tcp), 2).close()
