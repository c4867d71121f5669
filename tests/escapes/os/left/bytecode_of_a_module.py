# A .pyc beside a module, or where PYTHONPYCACHEPREFIX would look.
only_the_next_kernel = True  # the folder that cells run in is on their path, as under ipykernel
import importlib.util
def leave(w):
    for folder in (os.path.dirname(json.__file__), w.scratch, w.writable):
        try:
            os.makedirs(f"{folder}/__pycache__", exist_ok=True)
            open(f"{folder}/__pycache__/colorsys.cpython-{sys.version_info[0]}{sys.version_info[1]}.pyc", "w").close()
        except OSError:
            pass
def find(w):
    import colorsys
    return colorsys.__file__.startswith((w.scratch, w.writable)) or sys.pycache_prefix is not None
