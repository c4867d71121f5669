confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    socket.socketpair()[0].recv(1, socket.MSG_OOB)
