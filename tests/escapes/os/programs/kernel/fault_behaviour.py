# PR_MCE_KILL
confined = "EPERM"
def attack(w):
    prctl(33, 1, 2, 0, 0)
