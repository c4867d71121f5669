# CLOSE_RANGE_UNSHARE: each thread would have as many descriptors, and sockets' buffers, as all may.
confined = "EPERM"
def attack(w):
    call("close_range", 4000, 4001, 2)
