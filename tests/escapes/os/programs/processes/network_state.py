confined = "EACCES"
def attack(w):
    open("/proc/net/tcp").read()
