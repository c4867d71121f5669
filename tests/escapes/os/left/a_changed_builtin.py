import builtins
def leave(w):
    builtins.left = "here"
    sys.path.insert(0, w.scratch)
    sys.meta_path.append(None) or sys.meta_path.pop()
    os.environ["PYTHONSTARTUP"] = os.environ["LEFT"] = w.scratch
def find(w):
    return hasattr(builtins, "left") or w.scratch in sys.path or "LEFT" in os.environ
