# Nothing is imported from where cells write.
only_the_next_kernel = True  # the folder that cells run in is on their path, as under ipykernel
def leave(w):
    for folder in (w.scratch, w.writable):
        for module in ("colorsys", "this_is_left", "sitecustomize", "usercustomize", "zmq", "numpy"):
            open(f"{folder}/{module}.py", "w").write("left = True\n")
def find(w):
    import importlib
    for module in ("colorsys", "this_is_left", "sitecustomize", "usercustomize", "zmq", "numpy"):
        try:
            if hasattr(importlib.import_module(module), "left"):
                return True
        except ImportError:
            continue
    return False
