confined = "EPERM"
unconfined = "ENOKEY"
def attack(w):
    call("request_key", name("user"), name("cellblock-none"), 0, 0)
