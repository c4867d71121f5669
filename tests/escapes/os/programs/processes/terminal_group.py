confined = "EPERM"
unconfined = "ENOTTY"
def attack(w):
    os.tcsetpgrp(os.open("/dev/null", os.O_RDWR), os.getpid())
