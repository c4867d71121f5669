confined = "EPERM"
def attack(w):
    call("process_vm_readv", w.sentinel, 0, 0, 0, 0, 0)
