confined = "EPERM"
def attack(w):
    os.close(call("userfaultfd", 1))
