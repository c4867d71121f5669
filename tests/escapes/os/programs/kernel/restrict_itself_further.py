confined = "EPERM"
def attack(w):
    prctl(38, 1)
    try:
        call("landlock_restrict_self", 999, 0)
    except OSError as error:
        return error.errno == errno.EBADF or checked(-error.errno)
