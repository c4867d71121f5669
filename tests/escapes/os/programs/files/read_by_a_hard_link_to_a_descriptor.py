# linkat with AT_SYMLINK_FOLLOW takes /proc/self/fd as the file itself.
confined = "EXDEV"
def attack(w):
    fd = os.open(w.secret, os.O_PATH)
    call("linkat", AT_FDCWD, name(f"/proc/self/fd/{fd}"), AT_FDCWD, name("made"), 0x400)
