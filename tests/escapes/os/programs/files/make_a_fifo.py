# Whoever reads these folders would block on it.
confined = "EPERM"
def attack(w):
    os.mkfifo("made")
