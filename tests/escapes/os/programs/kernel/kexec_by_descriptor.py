confined = "EPERM"
only_root = True
unconfined = "EINVAL"
def attack(w):
    call("kexec_file_load", -1, -1, 0, 0, 0xFFFF)
