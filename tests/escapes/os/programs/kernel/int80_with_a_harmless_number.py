# 39 is getpid here and mkdir there.
confined = "EPERM"
machine = "x86_64"
unconfined = "EFAULT"
def attack(w):
    checked(run_code(b"\x53\x89\xf8\x31\xdb\x31\xc9\xcd\x80\x5b\xc3", 39))
