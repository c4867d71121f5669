confined = "EPERM"
def attack(w):
    call("landlock_create_ruleset", 0, 0, 1)
