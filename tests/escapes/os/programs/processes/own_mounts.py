confined = "EACCES"
def attack(w):
    open("/proc/self/mountinfo").read()
