# Session keyrings, and the keys in them, of whoever started the kernel (keyrings(7)).
confined = "EACCES"
def attack(w):
    open("/proc/keys").read()
