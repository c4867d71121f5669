confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    mapped(3 << 30, 3, 0x40122)
no_control = "machines without huge pages refuse it"
