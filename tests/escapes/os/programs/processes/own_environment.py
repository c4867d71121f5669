# It is empty; /proc is closed all the same.
confined = "EACCES"
def attack(w):
    open("/proc/self/environ").read()
