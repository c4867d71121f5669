confined = "EACCES"
def attack(w):
    print(open("/proc/thread-self/root" + w.secret).read())
