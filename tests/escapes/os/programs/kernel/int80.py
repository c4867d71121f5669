# The 32-bit entry counts calls otherwise: 20 is getpid there.
confined = "EPERM"
machine = "x86_64"
def attack(w):
    checked(run_code(b"\x53\x89\xf8\xcd\x80\x5b\xc3", 20))
