confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    socket.socketpair()[0].listen()
