confined = "EPERM"
def attack(w):
    fd = call("inotify_init1", 0)
    call("inotify_add_watch", fd, name(w.outside), 0xFFF)
