confined = "EPERM"
def attack(w):
    handle = space(struct.pack("Ii", 128, 0), 140)
    call("name_to_handle_at", AT_FDCWD, name(w.secret), handle, space(8), 0)
