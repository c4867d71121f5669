confined = "EPERM"
only_root = True
def attack(w):
    call("vhangup")
no_control = "it would hang up the terminal of whoever runs this"
