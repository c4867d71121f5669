confined = "held"
no_control = "no OS kernel has such calls yet"
def attack(w):
    for number in (*range(480, 1024), 4096, 65535, 2**31 - 1):
        try:
            call(number, -1, -1, -1, -1, -1, -1)
            return True
        except OSError as error:
            if error.errno != errno.ENOSYS:
                return True
    return False
