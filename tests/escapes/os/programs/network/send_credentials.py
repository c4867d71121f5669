confined = "EPERM"
def attack(w):
    a, b = socket.socketpair()
    ids = struct.pack("iii", os.getpid(), os.getuid(), os.getgid())
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, 2, ids)])
