# PR_SET_SYSCALL_USER_DISPATCH: another way to answer calls.
confined = "EPERM"
unconfined = "EINVAL"
def attack(w):
    prctl(59, 99, 0, 0, 0)
