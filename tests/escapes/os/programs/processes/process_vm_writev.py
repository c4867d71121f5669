confined = "EPERM"
def attack(w):
    call("process_vm_writev", w.sentinel, 0, 0, 0, 0, 0)
