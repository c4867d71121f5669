confined = "EPERM"
def attack(w):
    call("move_pages", w.sentinel, 0, 0, 0, 0, 0)
