confined = "EPERM"
unconfined = "stopped"
def attack(w):
    call("tgkill", os.getpid(), threading.get_native_id(), signal.SIGSTOP)
