# The root itself hangs in a folder that is not the guest's.
confined = "EACCES"
unconfined = "ENOTEMPTY"
only_root = True
def attack(w):
    os.rmdir(os.path.dirname(w.writable))
