# O_TMPFILE makes a file without a name; linkat gives it one later.
confined = "EACCES"
def attack(w):
    os.open(w.outside, os.O_TMPFILE | os.O_WRONLY)
