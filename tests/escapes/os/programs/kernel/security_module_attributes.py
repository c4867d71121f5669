confined = "EPERM"
def attack(w):
    call("lsm_list_modules", space(64), space(struct.pack("I", 64)), 0)
