# Its flags lie in memory. ENOSYS: the C library then uses clone.
confined = "ENOSYS"
unconfined = "EINVAL"
def attack(w):
    call("clone3", space(88), 1)
