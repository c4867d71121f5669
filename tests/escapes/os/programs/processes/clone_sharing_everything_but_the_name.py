# All a thread shares, but another process.
confined = "EPERM"
no_control = "a child in the same memory would end the control's"
def attack(w):
    call("clone", 0x100 | 0x200 | 0x400 | 0x800 | signal.SIGCHLD, 0, 0, 0, 0)
