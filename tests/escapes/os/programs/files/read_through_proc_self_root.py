confined = "EACCES"
def attack(w):
    print(open("/proc/self/root" + w.secret).read())
