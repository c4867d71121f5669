confined = "ENOSYS"
def attack(w):
    os.close(call("io_uring_setup", 4, space(120)))
