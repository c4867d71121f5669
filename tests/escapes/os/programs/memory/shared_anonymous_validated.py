# MAP_SHARED_VALIDATE is another type of mapping.
confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    mapped(1 << 20, 3, 0x23)
