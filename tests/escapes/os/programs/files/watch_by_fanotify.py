confined = "EPERM"
def attack(w):
    os.close(call("fanotify_init", 0x200, 0))
