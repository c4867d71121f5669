# Its flags lie in memory, where a filter can't see them.
confined = "ENOSYS"
def attack(w):
    fd = call("openat2", AT_FDCWD, name(w.secret), space(struct.pack("QQQ", 0, 0, 0)), 24)
    print(os.read(fd, 100))
