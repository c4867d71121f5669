# Who opens a leased file waits for the holder.
confined = "EPERM"
def attack(w):
    fcntl.fcntl(os.open(w.readable + "/file", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
