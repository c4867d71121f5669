confined = "held"
def attack(w):
    C.sem_open.restype = ctypes.c_void_p
    made = C.sem_open(f"/{w.host}".encode(), os.O_CREAT, 0o600, 1)
    C.sem_unlink(f"/{w.host}".encode())
    return made is not None
