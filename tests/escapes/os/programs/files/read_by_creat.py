# The oldest way to open: makes or empties.
confined = "EACCES"
machine = "x86_64"
def attack(w):
    checked(call("creat", name(w.outside + "/made"), 0o600))
