# Without its parent-death signal a guest would outlive a killed kernel.
confined = "EPERM"
def attack(w):
    prctl(1, 0)
