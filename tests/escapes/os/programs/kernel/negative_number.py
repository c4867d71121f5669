confined = "ENOSYS"
no_control = "no OS kernel has such calls"
def attack(w):
    call(-1)
