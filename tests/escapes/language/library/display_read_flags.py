# The class's own opener flags.
from IPython.display import HTML
class H(HTML):
    _read_flags = "rb"
    def __init__(self): self.filename = "@@SSH@@"; self.url = None; self.reload()
print("ESCAPED", H().data)
