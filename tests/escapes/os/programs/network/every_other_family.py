# All numbers there may be, of all types: the first that opens is a way out.
confined = "held"
def attack(w):
    for family in range(64):
        for kind in (1, 2, 3, 4, 5, 6, 10):
            try:
                os.close(call("socket", family, kind, 0))
                return True
            except OSError as error:
                if error.errno != errno.EPERM:
                    return True
    return False
