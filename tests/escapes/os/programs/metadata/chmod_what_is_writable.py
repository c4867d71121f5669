# A set-user-id program in a folder that is collected from.
confined = "EPERM"
def attack(w):
    os.chmod("program", 0o4755)
