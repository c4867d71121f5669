confined = "EPERM"
no_control = "there is no channel outside"
def attack(w):
    s = socket.socket(fileno=os.dup(3))
    s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", 0))])
