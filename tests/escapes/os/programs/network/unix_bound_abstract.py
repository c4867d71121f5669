# A name that nothing in the file system shows, for another process to call.
confined = "EPERM"
def attack(w):
    socket.socket(socket.AF_UNIX).bind("\0" + w.abstract + "-made")
