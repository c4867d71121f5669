confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    call("remap_file_pages", 1, 0, 0, 0, 0)
