confined = "EPERM"
def attack(w):
    call("get_robust_list", w.sentinel, space(8), space(8))
