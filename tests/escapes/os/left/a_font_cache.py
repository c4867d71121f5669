# Read by matplotlib when it is imported: in the scratch folder, which goes with its kernel.
folder = os.environ.get("MPLCONFIGDIR", "")
only_the_next_kernel = True
def leave(w):
    os.makedirs(folder, exist_ok=True)
    open(folder + "/fontlist-v390.json", "w").write("{}")
    open(folder + "/matplotlibrc", "w").write("backend: module://left\n")
def find(w):
    return os.path.exists(folder + "/matplotlibrc")
