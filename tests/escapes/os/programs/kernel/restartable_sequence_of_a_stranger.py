# rseq takes memory of one's own only.
confined = "EINVAL"
no_control = "allowed: it reaches the calling thread alone"
def attack(w):
    call("rseq", 8, 32, 0, 0)
