# Code from a file that is named later.
from IPython.display import Code
shown = Code("x")
shown.filename = "@@SSH@@"
shown._read_flags = "r"
shown.reload()
print("ESCAPED", shown.data)
