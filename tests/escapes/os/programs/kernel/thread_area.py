confined = "EPERM"
machine = "x86_64"
def attack(w):
    call("set_thread_area", space(16))
