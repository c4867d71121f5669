confined = "EACCES"
def attack(w):
    fd = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o600)
    call("linkat", AT_FDCWD, name(f"/proc/self/fd/{fd}"), AT_FDCWD, name(w.outside + "/made"), 0x400)
