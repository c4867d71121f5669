confined = "EPERM"
def attack(w):
    call("add_key", name("user"), name("cellblock-test"), space(b"x"), 1, -2)
