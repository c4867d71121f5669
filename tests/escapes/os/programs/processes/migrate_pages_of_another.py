confined = "EPERM"
unconfined = "EINVAL"
unconfined = "EINVAL"
def attack(w):
    call("migrate_pages", w.sentinel, 1, space(8), space(8))
