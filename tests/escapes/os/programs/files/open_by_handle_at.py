# Handles can be guessed: inode numbers are small. EBADF: asked for a mount nobody opened.
confined = "EPERM"
unconfined = "EBADF"
only_root = True
def attack(w):
    handle = space(struct.pack("Ii", 8, 1), 140)
    call("open_by_handle_at", 999, handle, 0)
