confined = "EPERM"
def attack(w):
    os.close(call("mq_open", name(w.host), os.O_CREAT | os.O_RDWR, 0o600, 0))
    call("mq_unlink", name(w.host))
