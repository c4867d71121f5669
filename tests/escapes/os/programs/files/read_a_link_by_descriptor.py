confined = "EINVAL"
def attack(w):
    fd = call("openat", AT_FDCWD, name(w.outside + "/link"), os.O_PATH | os.O_NOFOLLOW, 0)
    call("readlinkat", fd, name(""), space(4096), 4096)
