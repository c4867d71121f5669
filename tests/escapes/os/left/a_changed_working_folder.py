def leave(w):
    os.chdir("/usr/lib")
    sys.path_importer_cache.clear()
def find(w):
    return os.getcwd() == "/usr/lib"
