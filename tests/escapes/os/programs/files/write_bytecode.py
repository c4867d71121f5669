# Bytecode beside a module is what the next kernel would run.
confined = "EACCES"
only_root = True
def attack(w):
    folder = os.path.dirname(json.__file__)
    os.close(os.open(folder + f"/{w.host}.pyc", os.O_CREAT | os.O_WRONLY))
    os.unlink(folder + f"/{w.host}.pyc")
