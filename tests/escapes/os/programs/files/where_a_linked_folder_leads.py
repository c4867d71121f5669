# chdir through a link and ask where one is: a link to a folder tells its target.
confined = "reached"
gap = "names"
def attack(w):
    os.symlink(w.outside, "made")
    os.chdir("made")
    return os.getcwd() == w.outside
