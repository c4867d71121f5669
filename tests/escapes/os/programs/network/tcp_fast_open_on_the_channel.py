confined = "EPERM"
no_control = "there is no channel outside"
def attack(w):
    call("sendto", 3, space(b"x"), 1, 0x20000000, 0, 0)
