confined = "EPERM"
unconfined = "ended with status 0"
machine = "x86_64"
def attack(w):
    os.execve("/lib64/ld-linux-x86-64.so.2", ["ld.so", w.readable + "/program"], {})
