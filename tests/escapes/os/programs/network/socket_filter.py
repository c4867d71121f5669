# SO_ATTACH_FILTER: code in the OS kernel.
confined = "EPERM"
def attack(w):
    code = space(struct.pack("=HBBI", 6, 0, 0, 0xFFFF))
    program = struct.pack("@HP", 1, ctypes.addressof(code))
    socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 26, program)
