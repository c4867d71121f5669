# Where names are not hidden, it can be seen where links lead.
confined = "reached"
gap = "names outside of the roots, and where they lead, are hidden by a mount namespace alone"
def attack(w):
    return os.readlink(w.outside + "/link") != ""
