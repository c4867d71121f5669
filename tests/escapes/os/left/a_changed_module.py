# A guest is a fork: what it writes to memory is its own.
def leave(w):
    json.left = os.left = "here"
    sys.modules["left"] = json
def find(w):
    return hasattr(json, "left") or hasattr(os, "left") or "left" in sys.modules
