# The C library asks a daemon, or a server, for names: no socket for either.
confined = "held"
no_control = "needs a name server"
def attack(w):
    try:
        socket.getaddrinfo("example.invalid", 80)
    except socket.gaierror:
        return False
