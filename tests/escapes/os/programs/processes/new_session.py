confined = "EPERM"
no_control = "whoever leads a session can't begin another, confined or not"
def attack(w):
    os.setsid()
