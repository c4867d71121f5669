confined = "EPERM"
unconfined = "ended with status 0"
def attack(w):
    os.execve("/bin/true", ["true"], {})
