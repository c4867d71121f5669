# Whatever is in the scratch folder goes with its kernel.
only_the_next_kernel = True
def leave(w):
    os.umask(0o022)
    os.chdir(w.scratch)
    for odd in ("new\nline", "-rf", "*", " ", "\x1b[2J", "n" * 255, "dollar$(id)", "\udcff\udcfe"):
        open(odd, "w").close()
    for n in range(3000):
        os.symlink("/", f"many{n}")
    os.symlink("loop", "loop")
    os.mkdir("closed", 0)
    for depth in range(60):  # a path longer than PATH_MAX; far deeper ones end their guest
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    os.chdir(w.writable)
def find(w):
    return os.path.lexists(w.scratch + "/loop")
