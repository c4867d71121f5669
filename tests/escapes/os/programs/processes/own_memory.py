# Writing there goes around what mprotect says.
confined = "EACCES"
def attack(w):
    os.open("/proc/self/mem", os.O_RDWR)
