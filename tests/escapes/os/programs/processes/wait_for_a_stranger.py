confined = "ECHILD"
no_control = "only one's own children can be waited for, whoever asks"
def attack(w):
    os.waitpid(w.sentinel, os.WNOHANG)
