confined = "EPERM"
def attack(w):
    call("ptrace", 16, w.sentinel, 0, 0)
    os.waitpid(w.sentinel, 0x40000000)
    call("ptrace", 17, w.sentinel, 0, 0)
