# AF_ALG: the OS kernel's ciphers.
confined = "EPERM"
def attack(w):
    socket.socket(38, socket.SOCK_SEQPACKET).close()
