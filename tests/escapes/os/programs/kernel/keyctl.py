# The session's keyring came from whoever logged in.
confined = "EPERM"
def attack(w):
    call("keyctl", 0, -3, 1)
