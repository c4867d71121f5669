confined = "EPERM"
def attack(w):
    socket.socket(socket.AF_UNIX).bind("made")
