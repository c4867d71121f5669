# The folder can be entered, which says nothing about what is in it.
confined = "EACCES"
def attack(w):
    os.chdir(w.outside)
    print(open("/proc/self/cwd/file").read())
