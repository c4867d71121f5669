def leave(w):
    for make in (lambda: call("add_key", name("user"), name("left"), space(b"x"), 1, -3), lambda: call("keyctl", 1, name("left"))):
        try:
            make()
        except OSError:
            pass
def find(w):
    return False
