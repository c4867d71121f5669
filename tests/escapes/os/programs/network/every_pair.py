confined = "held"
def attack(w):
    for family in range(64):
        for kind in (2, 3, 4, 5, 6, 10) if family == 1 else (1, 2, 3, 4, 5, 6, 10):
            try:
                call("socketpair", family, kind, 0, space(8))
                return True
            except OSError as error:
                if error.errno != errno.EPERM:
                    return True
    return False
